"""The agent of a machine: runs instructions and answers the host.

    host ── order ──► channel ─► serve ─► run ─► user code ─► sys.stdout, sys.stderr ─► pipes
         ◄─ report ── channel ◄────────────┘

The process may be frozen at any point and continue later, any number of times, with other peers
behind its descriptors. So nothing is remembered about the peer, and between orders no bytes wait in
a buffer.

User code shares the process and may break anything in it. The agent's modules therefore take the
functions they need at import (`from os import write`), and look builtins up in a copy of their own.
"""
