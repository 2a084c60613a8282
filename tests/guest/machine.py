#!/usr/bin/env python3
"""The kernel's NBD client against Hindsight, in an emulated machine.

    tests/guest/machine.py HINDSIGHT [KIND...]      (KIND: ext4 xfs; both by default)

A stock Debian kernel with the modules it needs, busybox and this machine's own nbd-client and file
system tools boot from memory under QEMU: there is no disk image. The server listens on loopback
only, which the guest reaches as 10.0.2.2. When the guest prints `@kill`, the server is killed with
SIGKILL and started again a second later. Exit code 0: everything held.
"""
import glob, lzma, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("GUEST_CACHE") or os.path.expanduser("~/.cache/hindsight-guest")
TOOLS = ["sync", "nbd-client", "mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair", "fstrim", "blkdiscard"]
MODULES = ["virtio_pci", "virtio_net", "crc32c_generic", "nbd", "ext4", "xfs"]
TIMEOUT_S = 600


def output(*argv, **more):
    more.setdefault("check", True)
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, **more).stdout


def find(program):
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not path:
        sys.exit(f"error: {program} is missing\nhint: scripts/install-packages guest")
    return path


def fetch_kernel():
    """The folder of an unpacked Debian kernel package; fetched once."""
    for done in glob.glob(f"{CACHE}/kernel/boot/vmlinuz-*"):
        return f"{CACHE}/kernel"
    os.makedirs(CACHE, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        if not download_kernel(folder):
            # The list of packages was never fetched here, or the mirror has moved on.
            subprocess.run(["apt-get", "update", "-q"], check=True)
            if not download_kernel(folder):
                sys.exit("error: there is no package linux-image-amd64 to be had")
        package = glob.glob(f"{folder}/*.deb")[0]
        subprocess.run(["dpkg-deb", "-x", package, f"{folder}/kernel"], check=True)
        os.rename(f"{folder}/kernel", f"{CACHE}/kernel")
    return f"{CACHE}/kernel"


def download_kernel(folder):
    depends = output("apt-cache", "depends", "linux-image-amd64", check=False)
    package = re.search(r"Depends: (linux-image-\d\S+)", depends)
    if not package:
        return False
    print(f"fetching {package.group(1)}", flush=True)
    command = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=", package.group(1)]
    return subprocess.run(command, cwd=folder).returncode == 0


def modules_in_order(kernel):
    """The files of MODULES and of what they depend on, dependencies first."""
    version = os.path.basename(glob.glob(f"{kernel}/lib/modules/*")[0])
    subprocess.run([find("depmod"), "-b", kernel, version], check=True)
    folder, needs = f"{kernel}/lib/modules/{version}", {}
    for line in open(f"{folder}/modules.dep"):
        module, _, rest = line.partition(":")
        needs[module] = rest.split()
    by_name = {os.path.basename(m).split(".")[0].replace("-", "_"): m for m in needs}
    # modules.dep lists what a module needs with the deepest need last.
    wanted = [m for name in MODULES for m in reversed([by_name[name]] + needs[by_name[name]])]
    return [f"{folder}/{m}" for m in dict.fromkeys(wanted)]


def content(path):
    data = open(path, "rb").read()
    return lzma.decompress(data) if path.endswith(".xz") else data


def libraries(program):
    return re.findall(r"(/\S+) \(0x", output("ldd", program))


def archive(files):
    """A cpio archive, `newc`: what the kernel unpacks as its first root."""
    parts = []

    def put(name, mode, data, number):
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        parts.extend([head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)])

    folders = {"dev"}
    for name in files:
        while name := os.path.dirname(name):
            folders.add(name)
    for number, name in enumerate(sorted(folders)):
        put(name, 0o040755, b"", number)
    for number, (name, (mode, data)) in enumerate(files.items(), 10_000):
        put(name, mode, data, number)
    put("TRAILER!!!", 0, b"", 0)
    return b"".join(parts)


def make_root(arguments):
    files, executable, plain = {}, 0o100755, 0o100644

    def add(name, data, mode=executable):
        files[name] = (mode, data)

    for name in "init", "test":
        add(name, content(f"{HERE}/{name}"))
    add("arguments", " ".join(arguments).encode(), plain)
    add("bin/busybox", content(find("busybox")))
    for tool in TOOLS:
        program = find(tool)
        add(f"tools/{tool}", content(program))
        for library in libraries(program):
            add(library[1:], content(library))
    order = modules_in_order(fetch_kernel())
    for module in order:
        add(f"modules/{os.path.basename(module).removesuffix('.xz')}", content(module), plain)
    names = [os.path.basename(module).removesuffix(".xz") for module in order]
    add("modules/order", "\n".join(names).encode(), plain)
    return archive(files)


class Server:
    """The server under test, on a fixed port, so that it comes back where it was."""

    def __init__(self, program, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.program, self.pool = program, f"{folder}/pool"
        self.log = open(f"{folder}/server.log", "a")
        self.start()

    def start(self):
        listeners = ["--nbd", f"127.0.0.1:{self.port}", "--http", "127.0.0.1:0"]
        self.process = subprocess.Popen([self.program, "serve", "--pool", self.pool, *listeners],
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            self.log.write(line)
            if line.strip() == "ready":
                drain = lambda stream=self.process.stderr: self.log.writelines(stream)
                threading.Thread(target=drain, daemon=True).start()
                return
        self.log.flush()
        sys.exit("error: the server did not start:\n" + open(self.log.name).read())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def kill_and_start(self):
        print("  (the server is killed, and started again a second later)", flush=True)
        self.kill()
        time.sleep(1)
        self.start()


def run_guest(folder, server):
    """Boots the guest and answers what it prints; its test's exit code, 124 when it took too long."""
    acceleration = "kvm" if os.environ.get("GUEST_ACCEL") == "kvm" else "tcg,thread=multi"
    kernel = glob.glob(f"{CACHE}/kernel/boot/vmlinuz-*")[0]
    line = ("console=ttyS0 quiet loglevel=3 panic=-1 oops=panic mitigations=off nokaslr "
            "random.trust_cpu=on audit=0 no_timer_check tsc=reliable")
    command = ["qemu-system-x86_64", "-accel", acceleration, "-cpu", "max", "-m", "1G",
               "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-serial", "stdio", "-kernel", kernel, "-initrd", f"{folder}/initrd",
               "-append", line, "-netdev", "user,id=net",
               "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]
    guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                             errors="replace")
    timer = threading.Timer(TIMEOUT_S, guest.kill)
    timer.start()
    code = 124
    try:
        for line in guest.stdout:
            line = line.rstrip()
            if line == "@kill":
                server.kill_and_start()
            elif line.startswith("@exit "):
                code = int(line.split()[1])
            else:
                print(line, flush=True)
        guest.wait()
    finally:
        timer.cancel()
        guest.kill()
        guest.wait()
    return code


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    program, kinds = os.path.abspath(sys.argv[1]), sys.argv[2:] or ["ext4", "xfs"]
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="hindsight-guest-") as folder:
        server = Server(program, folder)
        try:
            environment = {**os.environ, "HINDSIGHT_SERVER": f"unix:{server.pool}/api.sock"}
            output(program, "volume", "create", "disk", "--size", "512MiB", env=environment)
            with open(f"{folder}/initrd", "wb") as file:
                file.write(make_root([str(server.port), "disk", *kinds]))
            code = run_guest(folder, server)
        finally:
            server.kill()
    outcome = "passed" if code == 0 else f"FAILED ({code})"
    print(f"guest-test: {outcome} after {time.time() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
