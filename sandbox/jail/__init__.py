"""The jail: what a program may see and do (`policy`), and the ordered steps that put it there.

The modules that run inside a call (`launcher`, `enter`, `init`, `program`, `watch`, `work_dir`, `syscalls`) use the
standard library only and avoid `typing`, `dataclasses` and `re`: each call pays for their imports.

Theory of operation, one call:

    server ──► launcher     opens what only root may open, becomes nobody, unshares, maps its user
                 └► init    PID 1 of the new namespaces: builds the root, then watches until the end
                     └► program    limits, no capabilities, seccomp filter, then execve of the interpreter

The program shares nothing with init but its three standard streams. When init ends, the kernel ends everything in the
pid namespace; init ends when the program does, when a limit is passed, or when the server lets go of the lifeline.
"""
