"""What operators do to one group or lease at once: pause, resume, end a lease early."""
