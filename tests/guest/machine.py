#!/usr/bin/env python3
"""The kernel's clients of NBD, iSCSI and NFS against Hindsight, in an emulated machine.

    tests/guest/machine.py [--minutes N] HINDSIGHT [KIND...]

KIND is one of nbd-ext4, nbd-xfs, iscsi-ext4, iscsi-xfs, iscsi-chap, iscsi-multipath, nfs, lvm; all by default, but for
multipath where its daemon (package multipath-tools) is not installed. With CSI_SANITY=PATH, csi-sanity of
kubernetes-csi, there are csi-iscsi and csi-nbd, which take hindsight-csi from beside HINDSIGHT. With
NFS_SUITES=IMAGE, which make-suites makes, there are suites-cthon, -libnfs, -pjdfstest and -work, and -xfstests,
which takes hours and has to be named (XFSTESTS has what its `check` is given: -g quick). They run one after the
other, with the server killed (SIGKILL) and started again under each, of the suites under -work alone; with
--minutes again and again, and with more kills, until the time is over. A stock Debian kernel with the modules it needs, busybox and this
machine's own client and file system tools boot from memory under QEMU: there is no
disk image but that of the suites. The
server listens on loopback only, which the guest reaches as 10.0.2.2. What the guest prints goes to
standard output, lines with `@` apart: these ask Host for something. Exit code 0: everything held.
"""
import argparse, glob, hashlib, json, lzma, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("GUEST_CACHE") or os.path.expanduser("~/.cache/hindsight-guest")
KINDS = ["nbd-ext4", "nbd-xfs", "iscsi-ext4", "iscsi-xfs", "iscsi-chap", "iscsi-multipath", "nfs", "lvm"]
SANITY = os.environ.get("CSI_SANITY")
KINDS += ["csi-iscsi", "csi-nbd"] if SANITY else []
SUITES = os.environ.get("NFS_SUITES")
KINDS += [f"suites-{name}" for name in ["cthon", "libnfs", "pjdfstest", "work", "xfstests"]] if SUITES else []
SCRIPTS = ["init", "tests", "steps", "disks", "nbd", "iscsi", "nfs", "lvm", "csi", "suites"]
TOOLS = ["sync", "mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair", "fstrim", "blkdiscard", "nbd-client",
         "iscsid", "iscsiadm", "ip", "lvm"]
CSI_TOOLS = ["mount", "blockdev", "umount", "findmnt", "blkid", "resize2fs", "xfs_growfs"]
MODULES = ["virtio_pci", "virtio_net", "crc32c_generic", "ext4", "xfs", "nbd", "iscsi_tcp", "sd_mod",
           "dm_multipath", "dm_service_time", "scsi_dh_alua", "nfsv3"]
MODULES += ["virtio_blk"] if SUITES else []
TIMEOUT_S = 600
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def output(*argv, **more):
    more.setdefault("check", True)
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, **more).stdout


def find(program):
    path = shutil.which(program, path=PATH)
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
    folder, needs = f"{kernel}/lib/modules/{version}", {}
    if not os.path.exists(f"{folder}/modules.dep"):
        subprocess.run([find("depmod"), "-b", kernel, version], check=True)
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


def make_root(arguments, server):
    files, executable, plain = {}, 0o100755, 0o100644

    def add(name, data, mode=executable):
        files[name] = (mode, data)

    for name in SCRIPTS:
        add(name, content(f"{HERE}/{name}"))
    lines = "".join(f"{name}='{value}'\n" for name, value in arguments.items())
    add("arguments", lines.encode(), plain)
    add("bin/busybox", content(find("busybox")))
    multipath = ["multipathd"] if "iscsi-multipath" in arguments["KINDS"] else []
    csi = CSI_TOOLS if SANITY else []
    programs = {f"tools/{tool}": find(tool) for tool in TOOLS + multipath + csi}
    if SANITY:
        programs["tools/csi-sanity"] = SANITY
        programs["tools/hindsight-csi"] = os.path.join(os.path.dirname(server.program), "hindsight-csi")
        add("token", content(f"{server.pool}/token"), plain)
    # Those that no program is linked with: multipathd's plugins, and what its threads are ended with.
    for library in [*glob.glob("/lib/multipath/*.so"), *glob.glob("/lib/*/libgcc_s.so.1")]:
        programs[library[1:]] = library
    for name, program in programs.items():
        add(name, content(program))
        for library in libraries(program):
            add(library[1:], content(library))
    order = modules_in_order(fetch_kernel())
    for module in order:
        add(f"modules/{os.path.basename(module).removesuffix('.xz')}", content(module), plain)
    names = [os.path.basename(module).removesuffix(".xz") for module in order]
    add("modules/order", "\n".join(names).encode(), plain)
    return archive(files)


def free_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Server:
    """The server under test, on fixed ports, so that it comes back where it was."""

    def __init__(self, program, folder):
        self.program, self.pool, self.kills = program, f"{folder}/pool", 0
        self.nbd, *self.iscsi, self.nfs, self.http = free_ports(5)
        self.log = open(f"{folder}/server.log", "a")
        self.folder, self.config = folder, f"{folder}/config.toml"
        # Discovery sends the guest to where it finds the host.
        announced = ", ".join(f'"10.0.2.2:{port}"' for port in self.iscsi)
        with open(self.config, "w") as config:
            config.write(f"[iscsi]\nannounce = [{announced}]\n")
        self.environment = {**os.environ, "HINDSIGHT_SERVER": f"unix:{self.pool}/api.sock"}
        self.start()

    def start(self):
        listeners = ["--http", f"unix:{self.pool}/api.sock", "--http", f"127.0.0.1:{self.http}"]
        ports = [("nbd", self.nbd), *(("iscsi", port) for port in self.iscsi), ("nfs", self.nfs)]
        for protocol, port in ports:
            listeners += [f"--{protocol}", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen([self.program, "serve", "--config", self.config,
                                         "--pool", self.pool, *listeners],
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

    def command(self, *arguments):
        return output(self.program, *arguments, env=self.environment)


class Host:
    """What the guest can ask for. Every request is answered with one line."""

    def __init__(self, server):
        self.server = server

    def answer(self, request):
        name, *arguments = request.split()
        try:
            return getattr(self, f"do_{name}")(*arguments) or "done"
        except (AttributeError, subprocess.CalledProcessError, TypeError) as error:
            return f"error: {error}"

    def do_kill(self):
        """Kills the server, and starts it again a second later."""
        print("  (the server is killed, and started again a second later)", flush=True)
        self.server.kill()
        time.sleep(1)
        self.server.start()
        self.server.kills += 1

    def do_moment(self, name):
        """What time it is, and how far the history of a volume or share goes."""
        now = time.time_ns()
        latest = json.loads(self.server.command("resolve", f"{name}@latest", "--json"))
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
        return f"{clock}.{now % 10**9:09}Z {latest['seq']}"

    def do_file(self, moment, part, path, sum):
        """Whether a file of a part of the disk had these bytes at a moment."""
        command = [self.server.program, "file", "cat", f"disk@{moment}:{part}/{path}"]
        run = subprocess.run(command, env=self.server.environment, capture_output=True)
        found = hashlib.sha256(run.stdout).hexdigest()
        if run.returncode or found != sum:
            return f"error: {path} at {moment}: {run.returncode}, {found}: {run.stderr}"

    def do_chap(self, name, user, secret, mutual_user, mutual_secret):
        """A volume whose target asks for a proof, and gives one."""
        files = [f"{self.server.folder}/{name}.{which}" for which in ("initiator", "target")]
        for path, text in zip(files, (secret, mutual_secret)):
            with open(path, "w") as file:
                file.write(text)
        self.server.command("volume", "create", name, "--size", "256MiB")
        self.server.command("target", "set", name, "--chap-user", user, "--chap-secret-file", files[0],
                            "--mutual-user", mutual_user, "--mutual-secret-file", files[1])

    def do_hindsight(self, *arguments):
        self.server.command(*arguments)


def run_guest(folder, host, timeout_s):
    """Boots the guest and answers it; the exit code of its tests, 124 when they took too long."""
    acceleration = "kvm" if os.environ.get("GUEST_ACCEL") == "kvm" else "tcg,thread=multi"
    kernel = glob.glob(f"{CACHE}/kernel/boot/vmlinuz-*")[0]
    line = ("console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off nokaslr "
            "random.trust_cpu=on audit=0 no_timer_check tsc=reliable")
    command = ["qemu-system-x86_64", "-accel", acceleration, "-cpu", "max", "-m", "2G" if SUITES else "1G",
               "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-serial", f"file:{folder}/kernel.log", "-serial", "stdio",
               "-kernel", kernel, "-initrd", f"{folder}/initrd", "-append", line,
               "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
               "-device", "virtio-rng-pci"]
    command += ["-drive", f"file={SUITES},format=raw,if=virtio,snapshot=on"] if SUITES else []
    guest = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             errors="replace", bufsize=1)
    timer = threading.Timer(timeout_s, guest.kill)
    timer.start()
    code = 124
    try:
        for line in guest.stdout:
            line = line.rstrip()
            if line.startswith("@exit "):
                code = int(line.split()[1])
            elif line.startswith("@"):
                guest.stdin.write(host.answer(line[1:]) + "\n")
            else:
                print(line, flush=True)
        guest.wait()
    finally:
        timer.cancel()
        guest.kill()
        guest.wait()
    if code:
        print("the kernel's messages:", *open(f"{folder}/kernel.log").readlines()[-30:], sep="", flush=True)
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("hindsight")
    # What is not installed, or takes hours, is left to those who name it.
    apart = {"suites-xfstests"} | (set() if shutil.which("multipathd", path=PATH) else {"iscsi-multipath"})
    parser.add_argument("kind", nargs="*", default=[kind for kind in KINDS if kind not in apart])
    arguments = parser.parse_args()
    if wrong := set(arguments.kind) - set(KINDS):
        parser.error(f"no such kind: {', '.join(wrong)}; there are: {', '.join(KINDS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began, seconds = time.time(), int(arguments.minutes * 60)
    with tempfile.TemporaryDirectory(prefix="hindsight-guest-") as folder:
        server = Server(os.path.abspath(arguments.hindsight), folder)
        try:
            server.command("volume", "create", "disk", "--size", "512MiB")
            for share in ["home", "scratch"]:
                server.command("share", "create", share)
                # The guest's ports below 1024 are others when QEMU has passed them on.
                server.command("share", "allow", share, "127.0.0.1", "--any-port", "--squash", "none")
            target = json.loads(server.command("target", "show", "disk", "--json"))["name"]
            root = make_root({
                "KINDS": " ".join(arguments.kind), "KILLS": 10 if seconds else 1,
                "SECONDS_AT_LEAST": seconds, "NBD_PORT": server.nbd, "NFS_PORT": server.nfs,
                "ISCSI_PORTS": " ".join(map(str, server.iscsi)),
                "HTTP_PORT": server.http, "ISCSI_BASE": target.removesuffix(":disk"),
                "XFSTESTS": os.environ.get("XFSTESTS", "-g quick")}, server)
            with open(f"{folder}/initrd", "wb") as file:
                file.write(root)
            hours = 4 if "suites-xfstests" in arguments.kind else 0
            code = run_guest(folder, Host(server), TIMEOUT_S + 3600 * hours + seconds)
        finally:
            server.kill()
    outcome = "passed" if code == 0 else f"FAILED ({code})"
    print(f"guest-test: {outcome} after {time.time() - began:.0f} s; {server.kills} kills")
    return code


if __name__ == "__main__":
    sys.exit(main())
