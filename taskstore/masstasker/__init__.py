"""gRPC as MassTasker speaks it: the definition, and what is generated from it. No Django."""
