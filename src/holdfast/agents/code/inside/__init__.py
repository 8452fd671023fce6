"""What runs inside the sandbox: the programs that run tests and say, under seal, how they went.

Plain files, copied in; they import nothing of Holdfast. They share a process with code nobody
has read, so what they report is only as good as the seal: see `verdict.py` for what that holds
against, and SECURITY.md for what it does not.
"""
