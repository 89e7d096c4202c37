"""Who may do what: people, tokens, policy, audit, request limits."""
