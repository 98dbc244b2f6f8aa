"""The jail: what a program may see and do (`policy`), and the ordered steps that put it there.

The modules that run inside a call use the standard library only and avoid `typing` and `dataclasses`: calls pay for
their imports. `frames`, `bundle` and `seccomp` are the server's.

Theory of operation with zygotes (see also docs/sandbox.md):

    server ──► spawner     opens what only root may open, becomes nobody, unshares, maps its user as root inside
                 └► zygote      builds a read-only root, imports, warms up; makes slots by forking itself
                      └► slot        PID 1 of namespaces that one call at a time uses
                           └► ready       waits for a job, locks itself up, becomes the program; `finish` ends it

and without, one call (`--pool process`):

    server ──► launcher    opens what only root may open, becomes nobody, unshares, maps its user
                 └► init        PID 1 of the new namespaces: builds the root, then watches until the end
                     └► program     limits, no capabilities, seccomp filter, then execve of the interpreter

A program shares nothing with init but its three standard streams. When init ends, the kernel ends everything in the
pid namespace; what a program leaves behind ends with its run, at a limit, or when the server lets go.
"""
