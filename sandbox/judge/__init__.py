"""The judge: one program, compiled once, and run in a fresh jail for each of its tests.

server ──► Judge.lines      compiles program and checker, keeps tests in flight, in order, yields a line for each
             └► Case        one test: its run, and what it says against what was expected
                  ├► compare   texts and values, here in the server: what is expected never enters a jail
                  ├► driver    the program around a function that is called
                  └► checker   a run of its own, in a jail of its own, of a program that was compiled once
"""
