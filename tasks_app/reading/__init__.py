"""Lists, counts, rates, history, search, export, and the import that reads an export back."""
