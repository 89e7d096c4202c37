"""The types of requests and responses, shared by clients and the server. No Django."""
