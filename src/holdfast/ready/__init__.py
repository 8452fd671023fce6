"""Is it ready for production? What is asked of a user's own project before it is deployed.

`replay_check` replays recorded runs on new code; the others are named after their commands. Each
is a plain function: the command line and the inspector only show what it found.
"""
