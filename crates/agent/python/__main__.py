"""Starts the agent: `python DIRECTORY`, with the control socket as descriptor 3."""

from stasis_agent.serve import main

main()
