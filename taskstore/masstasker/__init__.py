"""gRPC as MassTasker speaks it: the definition, its stubs, and a client for workers. No Django."""
