"""Proves: a shell survives: variables, functions, arrays, its directory, background jobs, a coprocess, traps,
open descriptors.
How: a bash is driven over pipes; a check asks it about everything it was told, signals one of its jobs, and
waits for another."""

import subprocess

import program

steps = 0
# A job that has to be ready for a signal says so: one that came before would end it.
JOB = """
    (trap 'echo job-trapped > got; exit 5' USR2; : > armed; while :; do sleep 0.05; done) & job=$!
    until [ -e armed ]; do sleep 0.01; done; rm armed
"""


def tell(commands):
    """Runs commands and returns what they print."""
    bash.stdin.write(commands + "\necho --end-- $?\n")
    bash.stdin.flush()
    lines = []
    for line in iter(bash.stdout.readline, ""):
        if line.startswith("--end--"):
            return lines
        lines.append(line.rstrip("\n"))
    raise EOFError("bash has ended")


def setup():
    global bash
    bash = subprocess.Popen(["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    tell(f"""
        mkdir -p inner && cd inner
        count=0; words=(one two "three four"); declare -A map=([a]=1 [b]=2)
        add() {{ count=$((count + $1)); }}
        umask 027
        exec 7> log
        trap 'echo trapped' USR1
        {JOB}
        sleep 3000 & sleeper=$!
        coproc CAT {{ cat; }}
        cat_in=${{CAT[1]}} cat_out=${{CAT[0]}}
    """)


def check():
    program.expect(
        "variables", tell('echo "$count" "${#words[@]}" "${words[2]}" "${map[b]}"'), [f"{steps} 3 three four 2"]
    )
    program.expect("function", tell("add 5; echo $count; add -5"), [str(steps + 5)])
    program.expect("directory", tell('echo "${PWD##*/}"; test . -ef "$PWD" && echo same'), ["inner", "same"])
    program.expect("umask", tell("umask"), ["0027"])
    program.expect("jobs", tell("jobs -rp | wc -l | tr -d ' '"), ["3"])
    program.expect("signal to itself", tell("kill -USR1 $$"), ["trapped"])
    program.expect("coprocess", tell('echo through >&$cat_in; read -t 60 -u $cat_out line; echo "$line"'), ["through"])
    program.expect("log", tell("cat log"), [f"step {n}" for n in range(1, steps + 1)])
    program.expect(
        "signal to a job",
        tell("kill -USR2 $job; wait $job; echo $?; cat got" + JOB),
        ["5", "job-trapped"],
    )
    program.expect(
        "wait for a killed job", tell("kill $sleeper; wait $sleeper; echo $?; sleep 3000 & sleeper=$!"), ["143"]
    )
    program.expect("pipeline", tell("printf '%s\\n' c a b | sort | tr '\\n' ' '; echo"), ["a b c "])


def step():
    global steps
    steps += 1
    tell(f"add 1; echo step {steps} >&7")


def finish():
    tell("kill $job $sleeper $CAT_PID; wait")
    bash.stdin.close()
    bash.wait()


program.run(setup, check, step, lambda: (steps, tell("echo $count ${words[@]}")), finish)
