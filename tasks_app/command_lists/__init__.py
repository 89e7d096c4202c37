"""Shell commands in lists, on the verbs of the store (contract.md section 7)."""
