# Written by `python3 sdk/generate` from _async/__init__.py; change that instead.

"""The client, its machines and their instructions."""
