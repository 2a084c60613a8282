#!/usr/bin/env python3
"""Runs the blocks of a page of the documentation, in their order, and holds them to what they show.

    tests/docs/run.py HINDSIGHT PAGE

The page has a machine of its own as far as that goes: processes, network, /srv, /run and /etc are its
own, and it begins in /srv. Needs root.

```console blocks: each line `$ ...` is a command for one bash, with what follows up to the next one as
its output; lines that end in `\\` or lie within quotes go on. Without output shown only its success is
asked for. In what is shown `...` stands for anything, as a line of its own for any lines; times, tokens,
identities and speeds may differ, and so may runs of blanks. What `cmd &` shows is waited for.
```toml blocks: configuration with which a server must start.
```xml blocks must be well-formed.
A fence that says `not run: ...` is not, for that reason; of one that says `output varies` only the
success of its commands is asked for.
A comment `<!-- setup` ... `-->` is run, as what the reader of the page is supposed to have; there is
`start_server DIR ARGUMENTS...`, which leaves commands talking to it, and `stop_server` for the last;
`own_usr` gives the page a /usr of its own, and $PROJECT is where the project lies.
"""
import os
import re
import select
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.dom.minidom

PATIENCE_SECONDS = 120

MASKS = [
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"token=[0-9a-f]+", "token=TOKEN"),
    (r"\b[0-9a-f]{16}\b", "ID"),
    (r"\([\d.]+ .iB/sec and [\d.]+ ops/sec\)", "(SPEED)"),
    (r"\d\d\.\d\d sec", "SECONDS"),
    (r"[ \t]+", " "),
]


# The server of a setup leaves the TCP ports to those of the page.
SETUP = """
start_server() {
    export HINDSIGHT_SERVER=unix:/srv/$1/api.sock
    rm -f "/srv/$1.log"
    hindsight serve --pool "$1" --http "$HINDSIGHT_SERVER" "${@:2}" >/dev/null 2>"/srv/$1.log" &
    until grep -qsx ready "/srv/$1.log"; do kill -0 $! || { cat "/srv/$1.log"; return 1; }; sleep 0.02; done
}
stop_server() { kill %% && wait %%; }
own_usr() { mount -t overlay overlay -o "lowerdir=/usr,upperdir=$OWN/usr,workdir=$OWN/work" /usr; }
"""


class Wrong(Exception):
    pass


class Ended(Wrong):
    """Nothing can be run any more."""


def blocks(text):
    """Yields (line number, kind, why it is not run, lines)."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line, begin = lines[at], at + 1
        at += 1
        if line.startswith("```"):
            end, (kind, _, why) = "```", line[3:].partition(" ")
        elif line.strip() == "<!-- setup":
            end, kind, why = "-->", "setup", ""
        else:
            continue
        inside = []
        while lines[at] != end:
            inside.append(lines[at])
            at += 1
        at += 1
        yield begin, kind, why, inside


def is_open(command):
    """Whether a command goes on in the next line."""
    if command.endswith("\\"):
        return True
    asked = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True)
    return asked.returncode != 0 and "unexpected" in asked.stderr


def commands(inside, begin):
    """Yields (line number, command, lines of output that are shown)."""
    found = []
    for number, line in enumerate(inside, begin + 1):
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        elif found and not found[-1][2] and is_open(found[-1][1]):
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line.removeprefix("> "), [])
        elif found:
            found[-1][2].append(line)
        else:
            raise Wrong(f"line {number}: output before any command: {line}")
    return found


def masked(line):
    for pattern, word in MASKS:
        line = re.sub(pattern, word, line)
    return line.strip()


def matches(shown, got):
    """Whether lines of output are what is shown."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in masked(line).split("...")) + r"\n"
    text = "".join(masked(line) + "\n" for line in got if line.strip())
    return re.fullmatch(pattern, text) is not None


class Shell:
    """One bash for all of a page."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        self.bash = subprocess.Popen(
            ["bash", "--norc"], cwd="/srv", text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.run(SETUP)

    def run(self, command):
        """Starts a command and waits for its end; its exit status and where its output goes."""
        self.count += 1
        if "DOCS_VERBOSE" in os.environ:
            print(f"$ {command}", file=sys.stderr, flush=True)
        script, output = (f"{self.folder}/{self.count}.{end}" for end in ("sh", "out"))
        with open(script, "w") as file:
            file.write(command + "\n")
        self.bash.stdin.write(f". {script} </dev/null >{output} 2>&1; echo $?\n")
        ready, _, _ = select.select([self.bash.stdout], [], [], PATIENCE_SECONDS)
        status = self.bash.stdout.readline() if ready else None
        if not status:
            with open(output) as file:
                said = file.read()
            raise Ended(f"the shell ended, or waits for ever: {command}\n--- got\n{said}")
        return int(status), output


def check(shell, number, command, shown):
    status, output = shell.run(command)
    began = time.monotonic()
    in_background = command.rstrip().endswith("&")
    while True:
        # What it says before it ends is read afterwards.
        goes_on = in_background and shell.run("kill -0 $!")[0] == 0
        with open(output) as file:
            got = file.read().split("\n")
        is_right = matches(shown, got) if shown else status == 0
        if is_right:
            return
        if not goes_on or time.monotonic() - began > PATIENCE_SECONDS:
            lines = "\n".join(got).rstrip()
            told = "\n".join(shown) or "(success)"
            raise Wrong(f"line {number}: {command}\nexit status {status}\n"
                        f"--- shown\n{told}\n--- got\n{lines}")
        time.sleep(0.02)


def check_toml(shell, number, inside):
    text = "\n".join(inside) + "\n"
    tomllib.loads(text)
    folder = tempfile.mkdtemp(dir="/srv")
    with open(f"{folder}/config.toml", "w") as file:
        file.write(text)
    for setting in re.findall(r'"unix:(/[^"]*)/[^/"]*"', text):
        os.makedirs(setting, exist_ok=True)
    serve = (f"hindsight serve --config {folder}/config.toml --pool {folder}/pool "
             f"--pool-size 128MiB --http none &")
    # A server may have something to say once it serves: that a machine of the example is not there.
    check(shell, number, serve, ["...", "ready", "..."])
    check(shell, number, "kill %%; wait %%", [])
    subprocess.run(["rm", "-rf", folder], check=True)


def run_page(page):
    with open(page) as file:
        text = file.read()
    count, left, wrong = 0, [], []
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(folder)
        for begin, kind, why, inside in blocks(text):
            if why.startswith("not run: "):
                left.append(f"line {begin} {why}")
            elif kind == "setup":
                check(shell, begin, "set -e\n" + "\n".join(inside) + "\nset +e", [])
            elif kind == "console":
                for number, command, shown in commands(inside, begin):
                    count += 1
                    try:
                        check(shell, number, command, [] if why == "output varies" else shown)
                    except Ended:
                        raise
                    except Wrong as error:
                        wrong.append(str(error))
            elif kind == "toml":
                check_toml(shell, begin, inside)
                count += 1
            elif kind == "xml":
                xml.dom.minidom.parseString("\n".join(inside))
                count += 1
            elif kind in ("sh", ""):
                raise Wrong(f"line {begin}: commands are ```console, with `$ ` before each")
    if wrong:
        raise Wrong("\n\n".join(wrong))
    print(f"{page}: {count} commands and files as shown")
    for line in left:
        print(f"{page}: {line}")


def own_machine(folder):
    """The parts of the machine that are the page's own, once the namespaces are."""
    call = lambda *command: subprocess.run(command, check=True)
    call("mount", "--make-rprivate", "/")
    # Copies of what other tests have mounted would keep their devices busy.
    with open("/proc/self/mounts") as file:
        mounts = [line.split() for line in file]
    for source, point, *_ in reversed(mounts):
        if source.startswith("/dev/loop"):
            call("umount", "-l", point)
    call("mount", "-t", "tmpfs", "none", folder)
    call("cp", "-a", "/etc", folder)
    call("mount", "--bind", f"{folder}/etc", "/etc")
    for own in ("usr", "work"):
        os.mkdir(f"{folder}/{own}")
    for own in ("/srv", "/run"):
        call("mount", "-t", "tmpfs", "none", own)
    call("ip", "link", "set", "lo", "up")


def main():
    inside, program, page = sys.argv[1] == "--inside", sys.argv[-2], sys.argv[-1]
    program, page = os.path.abspath(program), os.path.abspath(page)
    if not inside:
        separate = ["unshare", "-mnpf", "--mount-proc", "--kill-child", sys.executable]
        sys.exit(subprocess.run([*separate, __file__, "--inside", program, page]).returncode)
    os.environ["PATH"] = f"{os.path.dirname(program)}:/usr/sbin:/sbin:{os.environ['PATH']}"
    os.environ["HOME"] = "/srv"
    for name in ("HINDSIGHT_SERVER", "HINDSIGHT_TOKEN", "HINDSIGHT_TOKEN_FILE"):
        os.environ.pop(name, None)
    os.environ["PROJECT"] = os.path.abspath(f"{os.path.dirname(__file__)}/../..")
    folder = os.environ["OWN"] = tempfile.mkdtemp()
    try:
        own_machine(folder)
        run_page(page)
    except Wrong as wrong:
        print(f"{page}: {wrong}", file=sys.stderr)
        sys.exit(1)
    finally:
        # What was mounted goes with the namespace.
        subprocess.run(["umount", "-l", "/etc", folder], stderr=subprocess.DEVNULL)
        os.rmdir(folder)


main()
