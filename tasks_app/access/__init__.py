"""Access: people, tokens, policy, sessions, audit and request limits."""
