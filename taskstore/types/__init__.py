"""The values that cross the wire, for programs and for the store. They need no Django."""
