"""The client, its machines and their instructions."""
