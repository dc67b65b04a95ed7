#!/usr/bin/env python3
"""Against a real Kubernetes API server (cluster.py): the manifests in packaging/kubernetes, the
rights of the ServiceAccount, and annotations to policies on simulated GPUs by way of `kubectl
proxy`, `derate-pods` and derated. A fake kubelet says which pod has which GPU.

    DERATE_KUBE_APISERVER=PATH api_server_test.py BUILD [SLOWNESS] [--rounds N]

Without a server, each test is skipped with its reason.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cluster  # noqa: E402
import pod_machine  # noqa: E402
from cluster import ADMIN, ApiServer, check, ending_with_us, newest_kubectl  # noqa: E402
from pod_machine import GPU, PREFIX, REPO, PodMachine, service_machine  # noqa: E402

OPTIONS = argparse.Namespace(build=None, rounds=10)
KUBE = REPO / "packaging/kubernetes"
CRDS = Path(__file__).resolve().parent / "prometheus_crds.yaml"
NAMESPACE, ACCOUNT = "derate", "derate"  # of our DaemonSet
LAB, NODE, OTHER_NODE = "lab", "n1", "n2"
WRITTEN_WITHIN = 3  # seconds, from `kubectl annotate` started to the write
BACK_WITHIN = 20    # after the API server is back: the sidecar waits 10 s at most between requests
COMPONENTS_FROM = (1, 21)  # kubectl's kustomize

SERVER = None
OPEN = contextlib.ExitStack()  # what is to be ended, also after Ctrl-C and SIGTERM


def setUpModule():
    global SERVER
    missing = cluster.why_not()
    if missing:
        raise unittest.SkipTest(missing)
    SERVER = ApiServer()
    OPEN.callback(SERVER.down)
    unittest.addModuleCleanup(OPEN.close)
    try:
        SERVER.up()
        SERVER.kubectl("create", "-f", CRDS)
        SERVER.kubectl("create", "namespace", NAMESPACE)
        SERVER.kubectl("create", "namespace", LAB)
        # kubectl takes the fields of our kinds from there.
        cluster.wait_until(lambda: "com.coreos.monitoring.v1.PrometheusRule" in json.dumps(
            SERVER.ask("GET", "/openapi/v2")[1]), 60, "the fields of the CRDs are published", 0.2)
    except BaseException:
        print(SERVER.logs(), file=sys.stderr)
        raise


def say(text):
    print(text, file=sys.stderr)


def times(name, taken):
    say(f"{name}: {min(taken):.2f} / {statistics.median(taken):.2f} / {max(taken):.2f} s "
        f"(min / median / max of {len(taken)})")


def kustomize(folder):
    """The documents of a kustomization, as text."""
    program, version = newest_kubectl()
    if version < COMPONENTS_FROM:
        raise unittest.SkipTest(f"kubectl {version} knows no components: 1.21 or later does")
    done = subprocess.run([program, "kustomize", str(folder)], env=SERVER.environment,
                          capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == 0, f"{folder}: {done.stderr}")
    return done.stdout


def count_of(text):
    """Of documents: each has a kind at its outermost level."""
    return sum(line.startswith("kind:") for line in text.splitlines())


# --- Manifests -----------------------------------------------------------------------------------

class Manifests(unittest.TestCase):
    def refused(self, text):
        return SERVER.kubectl("apply", "--dry-run=server", "-f", "-", text=text, code=1)

    def taken(self, text):
        """That the server takes each document; how many there are."""
        out = SERVER.kubectl("apply", "--dry-run=server", "-f", "-", text=text).splitlines()
        for line in out:
            self.assertRegex(line, r"(created|configured|unchanged) \(server dry run\)$")
        self.assertEqual(len(out), count_of(text), out)
        return len(out)

    def test_the_base_and_the_site(self):
        self.assertEqual(self.taken(kustomize(KUBE / "base")), 4)
        self.assertGreaterEqual(self.taken(kustomize(KUBE / "examples/site")), 9)

    def test_each_component_alone(self):
        folders = sorted(path.parent for path in
                         (KUBE / "components").rglob("kustomization.yaml"))
        self.assertGreater(len(folders), 3)
        with tempfile.TemporaryDirectory() as root:
            shutil.copytree(KUBE, root, dirs_exist_ok=True)
            for number, folder in enumerate(folders):
                site = Path(root) / f"site{number}"
                site.mkdir()
                # JSON is YAML.
                (site / "kustomization.yaml").write_text(json.dumps({
                    "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                    "resources": ["../base"],
                    "components": [f"../{folder.relative_to(KUBE)}"]}))
                with self.subTest(component=str(folder.relative_to(KUBE))):
                    self.assertGreater(self.taken(kustomize(site)), 4)

    def test_the_examples(self):
        found = sorted((KUBE / "examples").glob("*.yaml"))
        self.assertGreater(len(found), 2)
        for path in found:
            with self.subTest(example=path.name):
                self.taken(path.read_text())

    def test_a_misspelt_field_is_refused(self):
        """In each kind that has fields to misspell."""
        base, site = kustomize(KUBE / "base"), kustomize(KUBE / "examples/site")
        for text, right, wrong in (
                (base, "hostPID:", "hostPid:"),
                (base, "runAsNonRoot:", "runAsNonroot:"),
                (base, "terminationGracePeriodSeconds:", "terminationGraceSeconds:"),
                (site, "apiGroups:", "apiGroup:"),
                (site, "expirationSeconds:", "expireSeconds:"),
                (site, "podMetricsEndpoints:", "podMetricEndpoints:"),
                (site, "scrapeTimeout:", "scrapeTimout:"),
                (site, " expr:", " expression:")):
            with self.subTest(field=wrong):
                self.assertIn(right, text)
                self.assertIn(f'unknown field "{wrong.strip(" :")}"',
                              self.refused(text.replace(right, wrong)))
        self.assertIn("hostPID", self.refused(base.replace("hostPID: true", "hostPID: 7")))

    def test_the_pod_of_the_daemon_set_is_admitted(self):
        """The DaemonSet's controller, which there is none of here, would create it so."""
        status, _ = SERVER.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", body={
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia",
            "metadata": {"name": "nvidia"}})
        self.assertIn(status, (201, 409))
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
        for folder in ("base", "examples/site"):
            made = json.loads(SERVER.kubectl(
                "apply", "--dry-run=server", "-o", "json", "-f", "-",
                text=kustomize(KUBE / folder)))
            daemon_set = next(each for each in made["items"] if each["kind"] == "DaemonSet")
            pod = {"apiVersion": "v1", "kind": "Pod", **daemon_set["spec"]["template"]}
            pod["metadata"] = {**pod["metadata"], "name": "one", "namespace": NAMESPACE}
            status, answer = SERVER.ask("POST", pods, body=pod)
            self.assertEqual(status, 201, answer)
            # So that it can fail.
            pod["spec"] = {**pod["spec"], "priorityClassName": "no-such-class"}
            self.assertEqual(SERVER.ask("POST", pods, body=pod)[0], 403)


# --- Rights --------------------------------------------------------------------------------------

PODS = f"/api/v1/namespaces/{LAB}/pods"
POD = f"{PODS}/guarded"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"
READS = (
    "/api/v1/pods", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}",
    "/api/v1/pods?watch=true&timeoutSeconds=1", PODS, POD)


def a_pod(name, annotations=None, node=NODE):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": LAB, "annotations": annotations or {}},
            "spec": {"nodeName": node, "containers": [
                {"name": "main", "image": "registry.example.org/nothing:1"}]}}


def kind_of(api, kind, **more):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, **more}


# (name, method, path, body). `admin` may do each of them, so that a 403 is the ServiceAccount's.
NOT_ALLOWED = (
    ("patch a pod", "PATCH", POD, {"metadata": {"annotations": {"a": "b"}}}),
    ("replace a pod", "PUT", POD, a_pod("guarded")),
    ("create a pod", "POST", PODS, a_pod("more")),
    ("delete a pod", "DELETE", POD, None),
    ("delete all pods", "DELETE", PODS, None),
    ("patch a pod's status", "PATCH", f"{POD}/status", {"status": {"message": "x"}}),
    ("bind a pod", "POST", f"{POD}/binding", kind_of("v1", "Binding", target={"name": NODE})),
    ("evict a pod", "POST", f"{POD}/eviction",
     kind_of("policy/v1beta1", "Eviction", metadata={"name": "guarded", "namespace": LAB})),
    ("exec in a pod", "POST", f"{POD}/exec?command=id&container=main", None),
    ("attach to a pod", "POST", f"{POD}/attach?container=main", None),
    ("forward a pod's port", "POST", f"{POD}/portforward?ports=80", None),
    ("proxy to a pod", "GET", f"{POD}/proxy/", None),
    ("read a pod's log", "GET", f"{POD}/log", None),
    ("list secrets", "GET", "/api/v1/secrets", None),
    ("list secrets of its namespace", "GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
    ("list configmaps", "GET", "/api/v1/configmaps", None),
    ("read its configmap", "GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/derate", None),
    ("list nodes", "GET", "/api/v1/nodes", None),
    ("patch a node", "PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"a": "b"}}}),
    ("proxy to a node", "GET", f"/api/v1/nodes/{NODE}/proxy/pods", None),
    ("list namespaces", "GET", "/api/v1/namespaces", None),
    ("list services", "GET", "/api/v1/services", None),
    ("create an event", "POST", f"/api/v1/namespaces/{LAB}/events",
     kind_of("v1", "Event", involvedObject={"namespace": LAB})),
    ("list ServiceAccounts", "GET", "/api/v1/serviceaccounts", None),
    ("make itself a token", "POST",
     f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
     kind_of("authentication.k8s.io/v1", "TokenRequest", spec={})),
    ("list DaemonSets", "GET", "/apis/apps/v1/daemonsets", None),
    ("patch its DaemonSet", "PATCH",
     f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/derate",
     {"metadata": {"labels": {"a": "b"}}}),
    ("patch its ClusterRole", "PATCH", f"{RBAC}/clusterroles/derate-pods",
     {"metadata": {"labels": {"a": "b"}}}),
    ("bind itself to cluster-admin", "POST", f"{RBAC}/clusterrolebindings",
     kind_of("rbac.authorization.k8s.io/v1", "ClusterRoleBinding",
             roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                      "name": "cluster-admin"},
             subjects=[{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}])),
    ("list leases", "GET", "/apis/coordination.k8s.io/v1/leases", None),
    ("list CRDs", "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", None),
    ("list PrometheusRules", "GET", "/apis/monitoring.coreos.com/v1/prometheusrules", None),
    ("review a token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
     kind_of("authentication.k8s.io/v1", "TokenReview", spec={"token": "x"})),
    ("read metrics of the server", "GET", "/metrics", None),
)
# Every user has these, by Kubernetes' own roles system:basic-user and system:discovery.
OF_EVERYONE = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")


class Rights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        SERVER.kubectl("apply", "-f", "-", text=kustomize(KUBE / "base"))
        cls.token = SERVER.service_account_token(NAMESPACE, ACCOUNT)
        # Without the component older-kubelet it has no rights at all.
        SERVER.kubectl("delete", "--ignore-not-found", "clusterrolebinding", "derate-pods")
        cluster.wait_until(lambda: SERVER.ask("GET", "/api/v1/pods", cls.token)[0] == 403, 10,
                           "the ServiceAccount has no rights")
        SERVER.kubectl("apply", "-f", "-", text=kustomize(KUBE / "examples/site"))
        SERVER.ask("POST", PODS, body=a_pod("guarded"))
        cluster.wait_until(lambda: SERVER.ask("GET", "/api/v1/pods", cls.token)[0] == 200, 10,
                           "the ServiceAccount has its rights")

    @classmethod
    def tearDownClass(cls):
        SERVER.ask("DELETE", f"{POD}?gracePeriodSeconds=0")

    def request(self, method, path, body, token, **fields):
        if method != "GET":  # admin's requests change nothing
            path += ("&" if "?" in path else "?") + "dryRun=All"
        return SERVER.ask(method, path, token, body, MERGE if method == "PATCH" else
                          "application/json", **fields)

    def test_it_reads_pods(self):
        for path in READS:
            status, answer = SERVER.ask("GET", path, self.token)
            self.assertEqual(status, 200, (path, answer))

    def test_it_does_nothing_else(self):
        for name, method, path, body in NOT_ALLOWED:
            with self.subTest(name):
                status, answer = self.request(method, path, body, self.token)
                self.assertEqual(status, 403, answer)
                self.assertIn(f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", str(answer))
                status, answer = self.request(method, path, body, ADMIN)
                self.assertNotIn(status, (401, 403), answer)
        say(f"{len(NOT_ALLOWED)} requests of the ServiceAccount are refused by 403")

    def test_it_is_nobody_else(self):
        for fields in ({"Impersonate_User": "admin"},
                       {"Impersonate_User": "x", "Impersonate_Group": "system:masters"}):
            self.assertEqual(SERVER.ask("GET", "/api/v1/pods", self.token, **fields)[0], 403)
        self.assertEqual(SERVER.ask("GET", "/api/v1/pods", self.token[:-3] + "AAA")[0], 401)

    def test_the_server_lists_no_other_right(self):
        for namespace in (LAB, NAMESPACE, "kube-system"):
            status, answer = SERVER.ask(
                "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", self.token,
                {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
                 "spec": {"namespace": namespace}})
            self.assertEqual(status, 201, answer)
            rules = [rule for rule in answer["status"]["resourceRules"]
                     if not set(rule["resources"]) <= set(OF_EVERYONE)]
            self.assertEqual([(rule["apiGroups"], rule["resources"], sorted(rule["verbs"]))
                              for rule in rules], [([""], ["pods"], ["get", "list", "watch"])])
            self.assertTrue(all(rule["verbs"] == ["get"]
                                for rule in answer["status"]["nonResourceRules"]))


# --- From the annotation to the GPU --------------------------------------------------------------

CONFIG_OF_TEST = """[attribute]
pod_resources = "{folder}/resources.sock"
"""


class ServedMachine(PodMachine):
    """A node whose kubelet has no Pods API: derated's configuration, and the commands of the
    containers `pods` and `kubectl-proxy`, are those of the manifests, with paths of this test."""

    def __init__(self, build):
        super().__init__(build)
        # As emptyDir volumes are: every container may write there.
        self.shared = {f"/run/{name}": self.folder / name for name in
                       ("derate-pods", "kubectl-proxy")}
        for path in self.shared.values():
            path.mkdir()
            path.chmod(0o777)
        self.daemon_set = self.object(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/derate")
        self.config("derate", "derate.toml", self.folder / "derate.toml")
        drop_ins = self.folder / "derate.toml.d"
        drop_ins.mkdir()
        self.config("derate-older-kubelet", "50-older-kubelet.toml",
                    drop_ins / "50-older-kubelet.toml")
        (drop_ins / "60-test.toml").write_text(CONFIG_OF_TEST.format(folder=self.folder))
        self.proxy = self.sidecar = None

    @staticmethod
    def object(path):
        status, answer = SERVER.ask("GET", path)
        check(status == 200, f"{path}: {answer}")
        return answer

    def here(self, text):
        """A container's text with the paths of this test."""
        for path, there in self.shared.items():
            text = text.replace(path, str(there))
        return text.replace("$(NODE)", NODE)

    def config(self, name, key, path):
        data = self.object(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")["data"]
        path.write_text(self.here(data[key]))

    def container(self, name):
        """Its words after the program, and its user where we are root."""
        found = next(each for each in self.daemon_set["spec"]["template"]["spec"]["containers"]
                     if each["name"] == name)
        user = found["securityContext"]["runAsUser"] if os.geteuid() == 0 else None
        return [self.here(word) for word in found["args"]], user

    def start_proxy(self):
        words, user = self.container("kubectl-proxy")
        (SERVER.folder / "account.token").write_text(
            SERVER.service_account_token(NAMESPACE, ACCOUNT))
        config = SERVER.write_config("account", readable_by=user)
        self.proxy = SERVER.start("kubectl-proxy", [newest_kubectl()[0], f"--kubeconfig={config}",
                                                    *words], user)

    def start_sidecar(self):
        words, user = self.container("pods")
        self.sidecar = SERVER.start("pods", [self.build / "derate-pods", *words], user)

    def start(self, name, *arguments):
        """As PodMachine's, and it ends with us; derated by SIGTERM, so that it restores."""
        with open(self.folder / f"{name}.log", "ab") as out:
            program = subprocess.Popen(
                [*ending_with_us("TERM"), str(self.build / arguments[0]),
                 *map(str, arguments[1:])], env=self.environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True)
        self.programs.append(program)
        return program

    def up(self):
        self.start_proxy()
        self.start_sidecar()
        self.until((self.shared["/run/derate-pods"] / "pods.sock").exists, 20,
                   "the socket of derate-pods")
        return super().up()

    def down(self):
        for program in (self.sidecar, self.proxy):
            if program and program.poll() is None:
                program.kill()
                program.wait()
        super().down()

    # --- pods

    def add_pod(self, name, device, annotations=None, node=NODE):
        """A pod that runs, with a GPU; its UID."""
        status, answer = SERVER.ask("POST", PODS, body=a_pod(name, annotations, node))
        check(status == 201, f"{name}: {answer}")
        SERVER.ask("PATCH", f"{PODS}/{name}/status", body={"status": {"phase": "Running"}},
                   kind=MERGE)
        uid = answer["metadata"]["uid"]
        with self.kubelet.at_once():
            self.kubelet.say("pod", LAB, name, uid, "Running")
            self.kubelet.say("device", LAB, name, "main", GPU, device)
        return uid

    def annotate(self, name, word):
        """Starts kubectl, which sets KEY=VALUE or removes KEY-."""
        return subprocess.Popen(
            [SERVER.kubectl_program, "annotate", "--overwrite", "-n", LAB, "pod", name,
             f"{PREFIX}/{word}"], env=SERVER.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def annotated(self, name, word, holds, limit, what):
        """Seconds from the start of `kubectl annotate` until it holds."""
        begin = time.monotonic()
        with self.annotate(name, word) as process:
            self.until(holds, limit, what)
            took = time.monotonic() - begin
            check(process.wait(60) == 0, process.stderr.read())
        return took


def assure(loss):
    return ("assure", 1 - loss)


class Chain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = pod_machine.why_not(OPTIONS.build)
        if missing:
            raise unittest.SkipTest(missing)
        SERVER.kubectl("apply", "-f", "-", text=kustomize(KUBE / "examples/site"))
        cls.machine = ServedMachine(OPTIONS.build)
        ending = OPEN.enter_context(contextlib.ExitStack())
        ending.callback(cls.machine.down)
        cls.addClassCleanup(ending.close)
        try:
            cls.machine.up()
        except BaseException:
            say(SERVER.logs() + "\n" + cls.machine.log()[-4000:])
            raise

    def setUp(self):
        self.pods, self.bad = [], self.count_bad()
        self.addCleanup(self.remove_pods)

    def add_pod(self, name, at, annotations=None, node=NODE):
        """On the GPU of that index."""
        self.pods.append(name)
        return self.machine.add_pod(name, self.machine.uuids[at], annotations, node)

    def count_bad(self):
        result = self._outcome.result
        return len(result.failures) + len(result.errors)

    def remove_pods(self):
        if self.count_bad() > self.bad:
            say(SERVER.logs() + "\n" + self.machine.log()[-4000:])
        for name in self.pods:
            SERVER.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            self.machine.kubelet.say("remove", LAB, name)
        self.machine.until_wishes({}, 15)

    def test_to_the_write(self):
        """Of what the simulator sees; other GPUs are never written to."""
        machine, draw = self.machine, random.Random(3)
        for at in range(4):
            self.add_pod(f"pod-{at}", at)
        writes = [gpu["writes"] for gpu in machine.gpus()]
        taken = {"set": [], "removed": []}
        for _ in range(OPTIONS.rounds):
            for name, word, wanted in (("set", "policy=max-freq", [2]), ("removed", "policy-", [])):
                time.sleep(draw.uniform(0, 1))
                taken[name].append(machine.annotated(
                    "pod-2", word, lambda w=wanted: machine.locked() == w, WRITTEN_WITHIN,
                    f"locked: {wanted}"))
        for name, each in taken.items():
            times(f"kubectl annotate, {name}, to the write", each)
        self.assertEqual([at for at, gpu in enumerate(machine.gpus())
                          if gpu["writes"] != writes[at]], [2])
        # That was by way of the API server alone.
        self.assertEqual(machine.kubelet.calls()[0], 0)

    def test_set_changed_and_deleted(self):
        machine = self.machine
        self.add_pod("train", 0, {f"{PREFIX}/delta": "0.1"})
        self.add_pod("careful", 1, {f"{PREFIX}/govern": "false"})
        self.add_pod("elsewhere", 3, {f"{PREFIX}/policy": "max-freq"}, node=OTHER_NODE)
        machine.until_wishes({0: assure(0.1), 1: (None, None)})
        for word, wanted in (("delta=0.2", assure(0.2)), ("delta=0.05", assure(0.05))):
            took = machine.annotated(
                "train", word, lambda w=wanted: machine.wishes().get(0) == w, 4, word)
            say(f"kubectl annotate {word} to the status: {took:.2f} s")
        status, answer = SERVER.ask("DELETE", f"{PODS}/train?gracePeriodSeconds=0")
        self.assertEqual(status, 200, answer)
        machine.until_wishes({1: (None, None)})
        self.assertEqual(machine.locked(), [])

    def test_the_proxy_passes_lists_of_pods_on_and_nothing_else(self):
        path = self.machine.shared["/run/kubectl-proxy"] / "api.sock"
        self.machine.until(path.exists, 10, "the proxy's socket")
        for method, target, status in (
                ("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}", 200),
                ("GET", "/api/v1/secrets", 403), ("GET", PODS, 403), ("GET", "/version", 403),
                ("GET", "/api/v1/pods/", 403), ("GET", "/api/v1/pods%2f..%2fsecrets", 403),
                # The proxy sends the client to the path without "..", which it then refuses.
                ("GET", "/api/v1/pods/../secrets", 301), ("HEAD", "/api/v1/secrets", 403),
                ("POST", "/api/v1/pods", 403), ("DELETE", "/api/v1/pods", 403)):
            with self.subTest(f"{method} {target}"):
                body = "{}" if method == "POST" else None
                self.assertEqual(service_machine.ask(path, target, method, body).status, status)
        self.assertEqual(service_machine.ask(path, "/api/v1/pods", Host="evil.org").status, 403)

    def test_another_client_lists_the_pods(self):
        """gRPC's own, of derate-pods: what we speak is not what we think gRPC is."""
        uid = self.add_pod("train", 0, {f"{PREFIX}/delta": "0.1", "example.org/delta": "0.2"})
        self.add_pod("elsewhere", 3, {f"{PREFIX}/delta": "0.1"}, node=OTHER_NODE)
        self.machine.until_wishes({0: assure(0.1)})
        done = subprocess.run(
            [OPTIONS.build / "fake_kubelet", self.machine.shared["/run/derate-pods"] / "pods.sock",
             "list"], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [f"{LAB}/train {uid} {PREFIX}/delta=0.1"])

    def test_pods_are_given_as_metadata_alone(self):
        """As derate-pods requests them: authors cannot make its lists long by their specs."""
        path = self.machine.shared["/run/kubectl-proxy"] / "api.sock"
        self.add_pod("wordy", 0, {f"{PREFIX}/delta": "0.1"})
        answer = json.loads(service_machine.ask(
            path, "/api/v1/pods", "GET", None, Accept="application/json;as="
            "PartialObjectMetadataList;v=v1;g=meta.k8s.io, application/json").body)
        self.assertEqual(answer["kind"], "PartialObjectMetadataList")
        self.assertIn("wordy", [each["metadata"]["name"] for each in answer["items"]])
        self.assertTrue(all("spec" not in each for each in answer["items"]))

    def test_the_server_is_killed_and_comes_back(self):
        machine = self.machine
        self.add_pod("train", 0, {f"{PREFIX}/delta": "0.1"})
        machine.until_wishes({0: assure(0.1)})
        SERVER.kill_server()
        machine.hold({0: assure(0.1)}, 10)
        say(f"kube-apiserver: ready again after {SERVER.start_server():.1f} s")
        machine.hold({0: assure(0.1)}, 1)
        took = machine.annotated("train", "delta=0.2",
                                 lambda: machine.wishes() == {0: assure(0.2)}, BACK_WITHIN,
                                 "the changed annotation")
        say(f"kubectl annotate, after the server is back, to the policy: {took:.2f} s")

    def test_the_proxy_and_the_sidecar_are_killed_and_come_back(self):
        """The kubelet would start them again: each finds the other's socket and its own old one."""
        machine = self.machine
        self.add_pod("train", 0, {f"{PREFIX}/delta": "0.1"})
        machine.until_wishes({0: assure(0.1)})
        for loss, program, start in ((0.2, "proxy", machine.start_proxy),
                                     (0.1, "sidecar", machine.start_sidecar)):
            process = getattr(machine, program)
            process.send_signal(signal.SIGKILL)
            process.wait()
            machine.hold(machine.wishes(), 2)
            start()
            took = machine.annotated("train", f"delta={loss}",
                                     lambda w=loss: machine.wishes() == {0: assure(w)},
                                     BACK_WITHIN, f"with a new {program}")
            say(f"{program} killed: its changed annotation took {took:.2f} s")


def main():
    arguments = sys.argv
    service_machine.begin(arguments)
    OPTIONS.build = service_machine.energy_test.BUILD
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="of kubectl annotate to the write")
    _, rest = parser.parse_known_args(arguments[1:], namespace=OPTIONS)
    cluster.end_on_sigterm()
    with OPEN:
        unittest.main(argv=[arguments[0], "-v", *rest])


if __name__ == "__main__":
    main()
