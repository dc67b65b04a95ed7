"""A real Kubernetes API server on this machine: a kube-apiserver (scripts/kube-apiserver builds
one), Debian's etcd and kubectl, on free ports of the loopback and in a folder of their own. There
is no kubelet, no scheduler and no controller manager: pods stay as the test makes them."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
READY_WITHIN = 120  # seconds; 18 on a loaded machine
ADMIN = "admintoken"
ISSUER = "https://kubernetes.default.svc"
KUBECONFIG = """apiVersion: v1
kind: Config
clusters:
  - name: it
    cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: "{certificate}"}}
users:
  - name: who
    user: {{tokenFile: "{token}"}}
contexts:
  - name: it
    context: {{cluster: it, user: who}}
current-context: it
"""


class Failure(AssertionError):
    """What did not hold."""


def check(holds, what):
    if not holds:
        raise Failure(what)


def free_ports(count):
    """Ports that nobody listens at now. Another program can still take one before we do."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(holds, limit, what, pause=0.02):
    """Waits until it holds; how long that took in seconds."""
    begin = time.monotonic()
    while not holds():
        if time.monotonic() - begin > limit:
            raise Failure(f"after {limit:g} s not yet: {what}")
        time.sleep(pause)
    return time.monotonic() - begin


def ending_with_us(name="KILL"):
    """What a command begins with so that the kernel sends it this signal when this process has
    ended, also if it was killed."""
    return ["setpriv", f"--pdeathsig={name}", "--"]


# --- Programs ------------------------------------------------------------------------------------

def server_program():
    return Path(os.environ.get("DERATE_KUBE_APISERVER", ""))


def beside(name):
    """The program as scripts/kube-apiserver has put it beside the server; else PATH's."""
    own = server_program().parent / name
    return str(own) if own.exists() else shutil.which(name)


def kubectl_version(program):
    """(major, minor); (0, 0): it does not run."""
    done = subprocess.run([program, "version", "--client", "-o", "json"], capture_output=True,
                          text=True, timeout=60, check=False)
    match = re.search(r'"gitVersion": "v(\d+)\.(\d+)', done.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def newest_kubectl():
    """The newest here, and its version. Debian's 1.20 knows no kustomize components."""
    found = {name for name in (beside("kubectl"), shutil.which("kubectl")) if name}
    return max(((kubectl_version(name), name) for name in found), default=((0, 0), None))[::-1]


def why_not():
    """Why no API server can be started here; None: it can."""
    if not os.environ.get("DERATE_KUBE_APISERVER"):
        return "DERATE_KUBE_APISERVER names no kube-apiserver (scripts/kube-apiserver builds one)"
    if not os.access(server_program(), os.X_OK):
        return f"DERATE_KUBE_APISERVER: {server_program()} is no program"
    for name in ("etcd", "kubectl", "openssl", "setpriv"):
        if beside(name) is None:
            return f"{name} is not installed (scripts/kube-apiserver brings etcd and kubectl)"
    return None


# --- The server ----------------------------------------------------------------------------------

class ApiServer:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="dkapi-"))
        self.folder.chmod(0o755)
        for part in ("log", "home"):
            (self.folder / part).mkdir()
        self.kubectl_program = beside("kubectl")
        self.certificate = self.folder / "certs/apiserver.crt"
        self.environment = os.environ | {
            "HOME": f"{self.folder}/home", "KUBECONFIG": f"{self.folder}/admin.conf",
            "KUBECACHEDIR": f"{self.folder}/home/cache"}
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            self.environment.pop(name, None)
        self.programs, self.server, self.context = [], None, None
        self.port = 0

    # --- programs

    def start(self, name, arguments, user=None):
        """Starts a program, which ends with us. `user`: by number, another than root."""
        command = ending_with_us()
        if user is not None:
            # The signal would be lost with a change of user, so it is set last.
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--",
                       *command]
        with open(self.folder / f"log/{name}", "ab") as out:
            program = subprocess.Popen([*command, *map(str, arguments)], env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       cwd=self.folder, start_new_session=True)
        self.programs.append(program)
        return program

    def make_keys(self):
        for words in (("genrsa", "-out", "sa.key", "2048"),
                      ("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")):
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True,
                           timeout=60)
        (self.folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n')
        (self.folder / "tokens.csv").chmod(0o600)

    def start_etcd(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        self.etcd = client
        program = self.start("etcd", [
            beside("etcd"), "--name=one", f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=one={peer}", "--log-level=error"])

        def answers():
            check(program.poll() is None, "etcd has ended")
            with contextlib.suppress(OSError):
                port = int(client.rsplit(":", 1)[1])
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port,
                                                                   timeout=5)) as connection:
                    connection.request("GET", "/health")
                    return b"true" in connection.getresponse().read()
            return False
        wait_until(answers, 60, "etcd answers", 0.1)

    def start_server(self):
        """Also again, after kill_server(): with the same port, keys and certificate."""
        self.server = self.start("kube-apiserver", [
            server_program(), f"--etcd-servers={self.etcd}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={self.port}", "--insecure-port=0",
            f"--cert-dir={self.folder}/certs", "--service-cluster-ip-range=10.0.0.0/24",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={self.folder}/sa.pub",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=Node,RBAC",
            "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
            "--allow-privileged=true"])

        def ready():
            check(self.server.poll() is None, "kube-apiserver has ended")
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.ask("GET", "/readyz")[0] == 200
            return False
        return wait_until(ready, READY_WITHIN, "kube-apiserver is ready", 0.1)

    def kill_server(self):
        self.server.kill()
        self.server.wait()

    def up(self):
        self.make_keys()
        self.start_etcd()
        self.port, = free_ports(1)
        took = self.start_server()
        print(f"kube-apiserver: ready after {took:.1f} s", file=sys.stderr)
        (self.folder / "admin.token").write_text(ADMIN)
        self.write_config("admin")
        return self

    def down(self):
        for program in reversed(self.programs):
            if program.poll() is None:
                program.terminate()
        end = time.monotonic() + 5
        for program in self.programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(max(0.1, end - time.monotonic()))
        for program in self.programs:
            if program.poll() is None:
                program.kill()
            program.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        try:
            return self.up()
        except BaseException:
            print(self.logs(), file=sys.stderr)
            self.down()
            raise

    def __exit__(self, *_):
        self.down()

    def logs(self, lines=8):
        """The ends of the logs, for who looks for a fault."""
        out = ""
        for path in sorted((self.folder / "log").iterdir()):
            text = path.read_text(errors="replace").splitlines()[-lines:]
            out += "".join(f"\n  {path.name}: {line[:300]}" for line in text)
        return out

    # --- requests

    def ask(self, method, path, token=ADMIN, body=None, kind="application/json", **fields):
        """(status, what was answered: a value of JSON, else text)."""
        if self.context is None:
            self.context = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60,
                                                 context=self.context)
        try:
            names = {name.replace("_", "-"): value for name, value in fields.items()}
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {
                "Authorization": f"Bearer {token}", "Accept": "application/json",
                **({"Content-Type": kind} if text else {}), **names})
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text

    def kubectl(self, *words, code=0, text=None, program=None):
        """Runs it as admin; what it printed, with standard error where it was to fail."""
        done = subprocess.run([program or self.kubectl_program, *map(str, words)],
                              env=self.environment, input=text or "", capture_output=True,
                              text=True, timeout=120, check=False)
        if code is not None:
            check(done.returncode == code, f"kubectl {' '.join(map(str, words))}: exit code "
                                           f"{done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout if code == 0 else done.stdout + done.stderr

    def write_config(self, name, readable_by=None):
        """NAME.conf of the token in NAME.token, which only that user can read."""
        path, token = self.folder / f"{name}.conf", self.folder / f"{name}.token"
        path.write_text(KUBECONFIG.format(port=self.port, certificate=self.certificate,
                                          token=token))
        token.chmod(0o600)
        if readable_by is not None:
            os.chown(token, readable_by, readable_by)
        return path

    def service_account_token(self, namespace, name):
        """As the kubelet requests it for a pod."""
        status, answer = self.ask(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                  "spec": {"expirationSeconds": 3600}})
        check(status == 201, f"no token: {answer}")
        return answer["status"]["token"]


def end_on_sigterm():
    """As by Ctrl-C, which unittest passes on. It counts other exceptions as failures of a test."""
    def end(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, end)
