"""What operators do to a group or a lease at once: pause, resume, give back."""
