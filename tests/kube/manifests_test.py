#!/usr/bin/env python3
"""The manifests in packaging/kubernetes: known fields, selectors that match, ports that exist,
rights of each container, settings that `derate config check` accepts, metrics that derated serves;
and what `kubectl kustomize` makes of them, where there is a kubectl.

    manifests_test.py [--derate DERATE]
"""
import copy
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import yaml
except ImportError:
    yaml = None

ROOT = Path(__file__).resolve().parents[2]
KUBE = ROOT / "packaging/kubernetes"
BASE, COMPONENTS, EXAMPLES = KUBE / "base", KUBE / "components", KUBE / "examples"
OLDER = COMPONENTS / "older-kubelet"
RULES = COMPONENTS / "prometheus-operator/rules/prometheusrule.yaml"
DERATE = None

# --- The fields that these manifests may have -----------------------------------------------------

# Of Kubernetes' API and the Prometheus Operator's: the few that are used here. A new field gets its
# line here once somebody has looked it up. "name!": required. {"*": type}: any keys. A tuple: any
# of these types.
QUANTITY = (str, int)
TEXTS = {"*": str}
META = {"name!": str, "namespace": str, "labels": TEXTS, "annotations": TEXTS}
POD_META = {"labels": TEXTS, "annotations": TEXTS}
SELECTOR = {"matchLabels!": TEXTS}
KEY_PATHS = [{"key!": str, "path!": str}]
FIELD = {"fieldPath!": str}
PROBE = {
    "exec": {"command!": [str]},
    "httpGet": {"path!": str, "port!": (int, str)},
    "periodSeconds": int, "timeoutSeconds": int, "failureThreshold": int,
}
CONTAINER = {
    "name!": str, "image!": str, "command": [str], "args": [str],
    "env": [{"name!": str, "value": str, "valueFrom": {"fieldRef!": FIELD}}],
    "ports": [{"name!": str, "containerPort!": int, "protocol": str}],
    "securityContext": {
        "privileged": bool, "runAsUser": int, "runAsGroup": int, "runAsNonRoot": bool,
        "allowPrivilegeEscalation": bool, "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str]}, "seccompProfile": {"type!": str},
    },
    "resources": {"requests": {"*": QUANTITY}, "limits": {"*": QUANTITY}},
    "startupProbe": PROBE, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
}
VOLUME = {
    "name!": str,
    "emptyDir": {"medium": str, "sizeLimit": QUANTITY},
    "hostPath": {"path!": str, "type!": str},
    "projected": {"sources!": [{
        "configMap": {"name!": str, "items": KEY_PATHS},
        "serviceAccountToken": {"path!": str, "expirationSeconds": int},
        "downwardAPI": {"items!": [{"path!": str, "fieldRef!": FIELD}]},
    }]},
}
POD = {
    "serviceAccountName": str, "automountServiceAccountToken": bool, "enableServiceLinks": bool,
    "hostPID": bool, "runtimeClassName": str, "priorityClassName": str, "nodeSelector": TEXTS,
    "tolerations": [{"key!": str, "operator!": str, "effect": str}],
    "terminationGracePeriodSeconds": int, "restartPolicy": str,
    "containers!": [CONTAINER], "volumes": [VOLUME],
}
TEMPLATE = {"metadata!": POD_META, "spec!": POD}
ENDPOINT = {
    "port!": str, "path": str, "interval": str, "scrapeTimeout": str,
    "relabelings": [{"sourceLabels": [str], "targetLabel": str, "action": str, "regex": str}],
}
HEAD = {"apiVersion!": str, "kind!": str, "metadata!": META}
KUSTOMIZATION = {
    "apiVersion!": str, "kind!": str, "resources": [str], "components": [str],
    "patches": [{"path!": str}],
    "images": [{"name!": str, "newName": str, "newTag": str}],
}
KINDS = {
    ("v1", "Namespace"): HEAD,
    ("v1", "ServiceAccount"): {**HEAD, "automountServiceAccountToken": bool},
    ("v1", "ConfigMap"): {**HEAD, "data!": TEXTS},
    ("v1", "Pod"): {**HEAD, "spec!": POD},
    ("v1", "Service"): {**HEAD, "spec!": {
        "clusterIP": str, "publishNotReadyAddresses": bool, "selector!": TEXTS,
        "ports!": [{"name!": str, "port!": int, "targetPort": (int, str), "protocol": str}]}},
    ("apps/v1", "DaemonSet"): {**HEAD, "spec!": {
        "selector!": SELECTOR, "template!": TEMPLATE,
        "updateStrategy": {"type!": str, "rollingUpdate": {"maxUnavailable": (int, str)}}}},
    ("apps/v1", "Deployment"): {**HEAD, "spec!": {
        "replicas": int, "selector!": SELECTOR, "template!": TEMPLATE,
        "strategy": {"type!": str}}},
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {**HEAD, "rules!": [
        {"apiGroups!": [str], "resources!": [str], "verbs!": [str]}]},
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): {
        **HEAD, "roleRef!": {"apiGroup!": str, "kind!": str, "name!": str},
        "subjects!": [{"kind!": str, "name!": str, "namespace!": str}]},
    ("monitoring.coreos.com/v1", "PodMonitor"): {**HEAD, "spec!": {
        "selector!": SELECTOR, "podMetricsEndpoints!": [ENDPOINT]}},
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {**HEAD, "spec!": {
        "selector!": SELECTOR, "endpoints!": [ENDPOINT]}},
    ("monitoring.coreos.com/v1", "PrometheusRule"): {**HEAD, "spec!": {"groups!": [{
        "name!": str, "rules!": [{
            "alert!": str, "expr!": str, "for": str, "labels!": TEXTS,
            "annotations!": {"summary!": str, "description!": str}}]}]}},
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): KUSTOMIZATION,
    ("kustomize.config.k8s.io/v1alpha1", "Component"): KUSTOMIZATION,
}


def shape_problems(value, schema, at, is_patch=False):
    """Fields that the schema lacks, missing ones (a patch may lack any), values of another type."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{at}: no map"]
        fields = {key.rstrip("!"): each for key, each in schema.items()}
        out = [f"{at}.{key[:-1]}: missing" for key in schema
               if key.endswith("!") and key[:-1] not in value and not is_patch]
        for key, each in value.items():
            if key not in fields and "*" not in fields:
                out.append(f"{at}.{key}: unknown field")
            else:
                out += shape_problems(each, fields.get(key, fields.get("*")), f"{at}.{key}",
                                      is_patch)
        return out
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{at}: no list"]
        return [problem for number, each in enumerate(value)
                for problem in shape_problems(each, schema[0], f"{at}[{number}]", is_patch)]
    types = schema if isinstance(schema, tuple) else (schema,)
    if isinstance(value, bool) and bool not in types or not isinstance(value, types):
        return [f"{at}: {value!r} is of another type"]
    return []


def document_problems(document, is_patch=False):
    schema = KINDS.get((document.get("apiVersion"), document.get("kind")))
    if schema is None:
        return [f"{document.get('apiVersion')} {document.get('kind')}: unknown kind"]
    return shape_problems(document, schema, document["kind"], is_patch)


# --- Reading --------------------------------------------------------------------------------------

def strict_loader():
    """A key that is there twice is an error; of YAML's own loader the last one counts."""
    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if len(keys) != len(set(keys)):
                raise yaml.YAMLError(f"a key is there twice{node.start_mark}")
            return super().construct_mapping(node, deep)
    return Loader


def documents(text):
    return [each for each in yaml.load_all(text, strict_loader()) if each is not None]


def read(path):
    return documents(path.read_text(encoding="utf-8"))


def manifests():
    return sorted(KUBE.rglob("*.yaml"))


def patches():
    """Files that kustomizations name as patches."""
    return {(path.parent / each["path"]).resolve() for path in KUBE.rglob("kustomization.yaml")
            for each in read(path)[0].get("patches", [])}


MERGE_KEYS = {"containers": "name", "volumes": "name", "volumeMounts": "mountPath"}


def merged(old, new, key=""):
    """As a strategic merge patch does, for the fields that are used here."""
    if isinstance(old, dict) and isinstance(new, dict):
        out = dict(old)
        for name, value in new.items():
            out[name] = merged(old[name], value, name) if name in old else value
        return out
    if isinstance(old, list) and key in MERGE_KEYS:
        by = MERGE_KEYS[key]
        changes = {each[by]: each for each in new}
        out = [merged(each, changes.pop(each[by])) if each[by] in changes else each
               for each in old]
        return out + list(changes.values())
    return new


def base_set():
    return read(BASE / "daemonset.yaml")[0]


def older_set():
    return merged(base_set(), read(OLDER / "daemonset.yaml")[0])


def pods_of(document):
    """(metadata, spec) of the pods that a document makes."""
    if document["kind"] == "Pod":
        return [(document["metadata"], document["spec"])]
    if document["kind"] in ("DaemonSet", "Deployment"):
        template = document["spec"]["template"]
        return [(template["metadata"], template["spec"])]
    return []


def container(spec, name):
    return next(each for each in spec["containers"] if each["name"] == name)


# --- Rules ----------------------------------------------------------------------------------------

def workload_problems(document):
    """Selectors, ports of probes, mounts."""
    out = []
    for meta, spec in pods_of(document):
        if document["kind"] != "Pod":
            wanted = document["spec"]["selector"]["matchLabels"].items()
            if not wanted <= meta.get("labels", {}).items():
                out.append("the selector does not match the template's labels")
        volumes = {each["name"] for each in spec.get("volumes", [])}
        mounted = set()
        for each in spec["containers"]:
            out += container_problems(each)
            names = [mount["name"] for mount in each.get("volumeMounts", [])]
            mounted |= set(names)
            out += [f"{each['name']}: no volume '{name}'" for name in names if name not in volumes]
        out += [f"nobody mounts the volume '{name}'" for name in sorted(volumes - mounted)]
    return out


def container_problems(each):
    ports = each.get("ports", [])
    known = {port["name"] for port in ports} | {port["containerPort"] for port in ports}
    out = []
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = each.get(kind, {})
        if "httpGet" in probe and probe["httpGet"]["port"] not in known:
            out.append(f"{each['name']}: {kind}: no port {probe['httpGet']['port']!r}")
        if "exec" in probe and (probe["exec"]["command"][:2] != ["derate-agent", "--check"] or
                                probe["exec"]["command"][2:] not in (["/livez"], ["/readyz"])):
            out.append(f"{each['name']}: {kind}: {probe['exec']['command']}")
    return out


CLOSED = {"runAsNonRoot": True, "privileged": False, "allowPrivilegeEscalation": False,
          "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
          "seccompProfile": {"type": "RuntimeDefault"}}


def rights_problems(daemon_set):
    """derated alone is privileged and has folders of the node; kubectl-proxy alone has a token."""
    spec = daemon_set["spec"]["template"]["spec"]
    out = []
    if spec.get("automountServiceAccountToken") is not False:
        out.append("each container would get a token")
    volumes = {each["name"]: each for each in spec["volumes"]}
    for each in spec["containers"]:
        name, context = each["name"], each.get("securityContext", {})
        if (context.get("privileged") is True) != (name == "derated"):
            out.append(f"{name}: privileged")
        if name != "derated":
            out += [f"{name}: securityContext.{key}" for key, value in CLOSED.items()
                    if context.get(key) != value]
            if context.get("runAsUser", 0) == 0 or context.get("runAsGroup", 0) == 0:
                out.append(f"{name}: root")
            if {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} not in each.get("env", []):
                out.append(f"{name}: GPUs")
        for mount in each.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            token = any("serviceAccountToken" in source
                        for source in volume.get("projected", {}).get("sources", []))
            if token and name != "kubectl-proxy":
                out.append(f"{name}: token")
            if "hostPath" in volume and name != "derated":
                out.append(f"{name}: {volume['hostPath']['path']}")
            may_write = mount["name"] == "state" and name == "derated"
            if "hostPath" in volume and not may_write and mount.get("readOnly") is not True:
                out.append(f"{name}: may write to {volume['hostPath']['path']}")
    return out


# The container that makes the socket in each shared folder: no other may write there.
MAKERS = {"run": "derated", "pods-socket": "pods", "kubectl-proxy": "kubectl-proxy"}


def shared_problems(daemon_set):
    spec = daemon_set["spec"]["template"]["spec"]
    shared = {each["name"] for each in spec["volumes"] if "emptyDir" in each}
    out = [f"no maker of '{name}'" for name in sorted(shared - MAKERS.keys())]
    for each in spec["containers"]:
        out += [f"{each['name']}: may write to '{mount['name']}'"
                for mount in each["volumeMounts"] if mount["name"] in shared
                and MAKERS.get(mount["name"]) != each["name"] and not mount.get("readOnly")]
    return out


def served_metrics():
    table = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \|", table.partition("<!-- metrics -->")[2], re.MULTILINE))


def metric_problems(expression, served):
    """Names of metrics that derated does not serve. `up` is Prometheus' own."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", "", expression)
    bare = re.sub(r"\b(on|by|without|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    names = set(re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare))
    names -= {"and", "or", "unless", "up", "bool"}
    return [f"no metric '{name}'" for name in sorted(names - served)]


ANNOTATIONS = {
    "delta": lambda value: re.fullmatch(r"0\.\d+", value) and 0 < float(value) <= 0.5,
    "policy": lambda value: value in ("assure", "max-freq"),
    "govern": lambda value: value in ("true", "false"),
}


def annotation_problems(meta):
    out = []
    for key, value in meta.get("annotations", {}).items():
        prefix, _, name = key.partition("/")
        if prefix == "derate.dev" and (name not in ANNOTATIONS or not ANNOTATIONS[name](value)):
            out.append(f"{key}: '{value}'")
    return out


def kustomization_problems(folder):
    """Files of the folder that its kustomization does not name, and names without a file."""
    kustomization = read(folder / "kustomization.yaml")[0]
    named = kustomization.get("resources", []) + [each["path"] for each in
                                                  kustomization.get("patches", [])]
    out = [f"{name}: not there" for name in named + kustomization.get("components", [])
           if not (folder / name).exists()]
    there = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    return out + [f"{name}: not named" for name in sorted(there - set(named))]


def settings(data):
    """(section, key): value of the texts and switches in a TOML of one line a setting."""
    out, section = {}, ""
    for line in data.splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif match := re.fullmatch(r'(\w+) = "?([^"]*)"?', line):
            out[section, match[1]] = match[2]
    return out


def base_settings():
    return settings(read(BASE / "configmap.yaml")[0]["data"]["derate.toml"])


def option(each, name):
    """The value behind an option of a container, as two words or with `=`."""
    words = each.get("command", []) + each.get("args", [])
    for at, word in enumerate(words):
        if word == name:
            return words[at + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return None


def slowest_stop_s():
    """The guard's time from SIGTERM to its end with a worker that hangs (derated's main.cc)."""
    text = (ROOT / "apps/derated/main.cc").read_text(encoding="utf-8")
    silence, restore = map(int, re.search(r"double silence_s = (\d+), restore_s = (\d+);",
                                          text).groups())
    return (silence + restore) + 2 + restore + 2


# --- Tests ----------------------------------------------------------------------------------------

@unittest.skipUnless(yaml, "no python3-yaml here")
class Files(unittest.TestCase):
    def test_fields_are_known(self):
        changes, seen = patches(), set()
        for path in manifests():
            for document in read(path):
                self.assertEqual(document_problems(document, path.resolve() in changes), [],
                                 path.relative_to(KUBE))
                seen.add(document["kind"])
        self.assertEqual(seen, {kind for _, kind in KINDS})

    def test_kustomizations_name_every_file(self):
        folders = [path.parent for path in sorted(KUBE.rglob("kustomization.yaml"))]
        self.assertGreater(len(folders), 5)
        for folder in folders:
            self.assertEqual(kustomization_problems(folder), [], folder.relative_to(KUBE))

    def test_selectors_ports_and_mounts(self):
        seen = 0
        for document in [older_set(), *(each for path in manifests() for each in read(path)
                                        if path.resolve() not in patches())]:
            if pods_of(document):
                self.assertEqual(workload_problems(document), [], document["metadata"]["name"])
                seen += 1
        self.assertGreater(seen, 4)

    def test_everything_is_in_one_namespace(self):
        name = read(BASE / "namespace.yaml")[0]["metadata"]["name"]
        for path in [*BASE.glob("*.yaml"), *COMPONENTS.rglob("*.yaml")]:
            for document in read(path):
                if document["kind"] in ("Namespace", "Kustomization", "Component", "ClusterRole",
                                        "ClusterRoleBinding"):
                    continue
                self.assertEqual(document["metadata"].get("namespace"), name, path)

    def test_the_namespace_lets_the_pod_in(self):
        labels = read(BASE / "namespace.yaml")[0]["metadata"]["labels"]
        self.assertEqual(labels["pod-security.kubernetes.io/enforce"], "privileged")

    def test_the_image_is_one(self):
        images = {each["image"] for each in older_set()["spec"]["template"]["spec"]["containers"]
                  if each["name"] != "kubectl-proxy"}
        version = re.search(r"project\(derate VERSION ([\d.]+)",
                            (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
        self.assertEqual(images, {f"registry.example.org/derate:{version}"})
        changed = read(EXAMPLES / "site/kustomization.yaml")[0]["images"][0]
        self.assertIn(f"{changed['name']}:{changed['newTag']}", images)


@unittest.skipUnless(yaml, "no python3-yaml here")
class Rights(unittest.TestCase):
    def test_of_each_container(self):
        for daemon_set in (base_set(), older_set()):
            self.assertEqual(rights_problems(daemon_set), [])
            self.assertEqual(shared_problems(daemon_set), [])

    def test_the_token_reads_pods_and_nothing_else(self):
        role, binding = read(OLDER / "rbac.yaml")
        self.assertEqual(role["rules"], [{"apiGroups": [""], "resources": ["pods"],
                                          "verbs": ["get", "list", "watch"]}])
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        account = read(BASE / "serviceaccount.yaml")[0]
        self.assertEqual(binding["subjects"], [{
            "kind": "ServiceAccount", "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"]}])
        self.assertEqual(account["automountServiceAccountToken"], False)
        spec = base_set()["spec"]["template"]["spec"]
        self.assertEqual(spec["serviceAccountName"], account["metadata"]["name"])
        for path in manifests():
            if path.resolve() not in patches():
                for document in read(path):
                    self.assertNotIn(document["kind"], ("Role", "RoleBinding"))
                    if path.parent.parent == COMPONENTS and document["kind"] == "ClusterRole":
                        self.assertEqual(path.parent, OLDER)

    def test_derated_has_no_network(self):
        spec = base_set()["spec"]["template"]["spec"]
        self.assertNotIn("hostNetwork", spec)
        self.assertRegex(container(spec, "derated")["command"][-1],
                         r"&& exec unshare --net /usr/sbin/derated$")

    def test_the_proxy_passes_lists_of_pods_on_and_nothing_else(self):
        proxy = container(older_set()["spec"]["template"]["spec"], "kubectl-proxy")
        paths, methods = option(proxy, "--accept-paths"), option(proxy, "--reject-methods")
        for path, lets_in in (("/api/v1/pods", True), ("/api/v1/secrets", False),
                              ("/api/v1/pods/x/exec", False), ("/x/api/v1/pods", False),
                              ("/api/v1/namespaces/a/pods", False)):
            self.assertEqual(bool(re.search(paths, path)), lets_in, path)
        for method, refused in (("GET", False), ("POST", True), ("DELETE", True), ("PUT", True),
                                ("PATCH", True)):
            self.assertEqual(bool(re.search(methods, method)), refused, method)


@unittest.skipUnless(yaml, "no python3-yaml here")
class Together(unittest.TestCase):
    def test_derated_knows_the_agent_by_its_user(self):
        agent = container(base_set()["spec"]["template"]["spec"], "agent")
        user = agent["securityContext"]["runAsUser"]
        self.assertEqual(base_settings()["api", "agent"], str(user))
        recipe = (ROOT / "scripts/image").read_text(encoding="utf-8")
        self.assertIn(f"agent_user={user}\n", recipe)

    def test_the_agent_listens_on_its_port(self):
        agent = container(base_set()["spec"]["template"]["spec"], "agent")
        self.assertEqual(option(agent, "--listen"), f"0.0.0.0:{agent['ports'][0]['containerPort']}")
        self.assertIn("--metrics-only", agent["command"])

    def test_the_sockets_of_the_older_kubelet(self):
        spec = older_set()["spec"]["template"]["spec"]
        pods, proxy = container(spec, "pods"), container(spec, "kubectl-proxy")
        self.assertEqual(option(pods, "--api-server"), option(proxy, "--unix-socket"))
        self.assertEqual(pods["securityContext"]["runAsUser"],
                         proxy["securityContext"]["runAsUser"])
        self.assertNotEqual(pods["securityContext"]["runAsUser"],
                            container(spec, "agent")["securityContext"]["runAsUser"])
        drop_in = settings(read(OLDER / "configmap.yaml")[0]["data"]["50-older-kubelet.toml"])
        self.assertEqual(option(pods, "--socket"), drop_in["kubernetes", "pods_socket"])
        self.assertEqual(option(pods, "--prefix"), base_settings()["kubernetes", "prefix"])
        self.assertEqual(option(pods, "--node"), "$(NODE)")
        for each, socket in ((pods, option(pods, "--socket")), (pods, option(pods, "--api-server")),
                             (proxy, option(proxy, "--unix-socket")),
                             (container(spec, "derated"), option(pods, "--socket"))):
            self.assertIn(str(Path(socket).parent),
                          [mount["mountPath"] for mount in each["volumeMounts"]], each["name"])

    def test_the_kubelets_sockets_are_mounted(self):
        mounts = {mount["mountPath"] for mount in
                  container(base_set()["spec"]["template"]["spec"], "derated")["volumeMounts"]}
        self.assertIn(str(Path(base_settings()["kubernetes", "pods_socket"]).parent), mounts)
        self.assertLessEqual({"/var/lib/kubelet/pod-resources", "/var/log/pods", "/run/derate",
                              "/var/lib/derate", "/etc/derate"}, mounts)

    def test_the_older_kubelets_settings_are_mounted(self):
        spec = older_set()["spec"]["template"]["spec"]
        volumes = {each["name"]: each for each in spec["volumes"]}
        sources = [each["configMap"] for each in volumes["config"]["projected"]["sources"]]
        self.assertEqual(sources[0], {"name": read(BASE / "configmap.yaml")[0]["metadata"]["name"]})
        drop_in = read(OLDER / "configmap.yaml")[0]
        self.assertEqual(sources[1]["name"], drop_in["metadata"]["name"])
        self.assertEqual([item["key"] for item in sources[1]["items"]], list(drop_in["data"]))
        for item in sources[1]["items"]:
            self.assertRegex(item["path"], r"^conf\.d/[^.]\S*\.toml$")

    def test_the_grace_is_as_long_as_the_guard_needs(self):
        grace = base_set()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        self.assertGreater(grace, slowest_stop_s())
        self.assertGreaterEqual(slowest_stop_s(), 30)

    def test_nothing_restarts_derated_before_its_guard_does(self):
        probe = container(base_set()["spec"]["template"]["spec"], "derated")["livenessProbe"]
        self.assertGreater(probe["periodSeconds"] * (probe["failureThreshold"] - 1),
                           slowest_stop_s())

    def test_monitors_find_the_pods(self):
        labels = base_set()["spec"]["template"]["metadata"]["labels"]
        ports = {port["name"] for each in base_set()["spec"]["template"]["spec"]["containers"]
                 for port in each.get("ports", [])}
        folder = COMPONENTS / "prometheus-operator"
        pod = read(folder / "pod-monitor/podmonitor.yaml")[0]["spec"]
        service = read(folder / "service-monitor/service.yaml")[0]
        monitor = read(folder / "service-monitor/servicemonitor.yaml")[0]["spec"]
        self.assertLessEqual(pod["selector"]["matchLabels"].items(), labels.items())
        self.assertLessEqual(service["spec"]["selector"].items(), labels.items())
        self.assertLessEqual(monitor["selector"]["matchLabels"].items(),
                             service["metadata"]["labels"].items())
        self.assertIn(pod["podMetricsEndpoints"][0]["port"], ports)
        self.assertIn(service["spec"]["ports"][0]["targetPort"], ports)
        self.assertIn(monitor["endpoints"][0]["port"],
                      [port["name"] for port in service["spec"]["ports"]])

    def test_the_labels_of_tenants_are_kept(self):
        folder = COMPONENTS / "prometheus-operator"
        for path, key in (("pod-monitor/podmonitor.yaml", "podMetricsEndpoints"),
                          ("service-monitor/servicemonitor.yaml", "endpoints")):
            steps = read(folder / path)[0]["spec"][key][0]["relabelings"]
            dropped = [each["regex"] for each in steps if each.get("action") == "labeldrop"]
            self.assertEqual(len(dropped), 1)
            for label in ("namespace", "pod", "container"):
                self.assertRegex(label, f"^(?:{dropped[0]})$", path)
            for label in ("instance", "job", "user"):
                self.assertNotRegex(label, f"^(?:{dropped[0]})$", path)

    def test_the_examples_request_what_is_allowed(self):
        seen = 0
        for path in EXAMPLES.glob("*.yaml"):
            for document in read(path):
                for meta, spec in pods_of(document):
                    self.assertEqual(annotation_problems(meta), [], path.name)
                    self.assertTrue([key for key in meta["annotations"]
                                     if key.startswith("derate.dev/")], path.name)
                    self.assertEqual(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"],
                                     1)
                    seen += 1
        self.assertEqual(seen, 4)

    def test_the_examples_policies_may_be_chosen(self):
        allowed = base_settings()["kubernetes", "policies"].split(", ")
        self.assertTrue(all(map(ANNOTATIONS["policy"], allowed)))

    def test_the_settings(self):
        if DERATE is None:
            self.skipTest("no --derate")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "derate.toml"
            file.write_text(read(BASE / "configmap.yaml")[0]["data"]["derate.toml"])
            self.check_config(file, 0)
            drop_ins = Path(f"{file}.d")
            drop_ins.mkdir()
            for name, text in read(OLDER / "configmap.yaml")[0]["data"].items():
                (drop_ins / name).write_text(text)
            self.check_config(file, 0)
            file.write_text(file.read_text() + "no_such_key = 1\n")
            self.check_config(file, 78)

    def check_config(self, file, code):
        done = subprocess.run([DERATE, "config", "check", file], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)


@unittest.skipUnless(yaml, "no python3-yaml here")
class Alerts(unittest.TestCase):
    def test_metrics_are_served(self):
        served = served_metrics()
        self.assertGreater(len(served), 80)
        rules = [rule for group in read(RULES)[0]["spec"]["groups"] for rule in group["rules"]]
        self.assertGreater(len(rules), 10)
        for rule in rules:
            self.assertEqual(metric_problems(rule["expr"], served), [], rule["alert"])

    def test_they_are_those_of_the_dashboards(self):
        def bare(groups):
            return {rule["alert"]: (rule["expr"].split(), rule.get("for"), rule["labels"],
                                    rule["annotations"]["summary"])
                    for group in groups for rule in group["rules"]}
        ours = read(ROOT / "dashboards/prometheus/derate-alerts.yml")[0]["groups"]
        self.assertEqual(bare(read(RULES)[0]["spec"]["groups"]), bare(ours))

    @unittest.skipUnless(shutil.which("promtool"), "no promtool here")
    def test_promtool_finds_no_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rules.yml"
            file.write_text(yaml.safe_dump({"groups": read(RULES)[0]["spec"]["groups"]}))
            done = subprocess.run(["promtool", "check", "rules", file], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


@unittest.skipUnless(yaml, "no python3-yaml here")
class CanFail(unittest.TestCase):
    """Each rule above finds its fault."""

    def changed(self, change, make=base_set):
        document = copy.deepcopy(make())
        change(document["spec"]["template"]["spec"])
        return document

    def test_unknown_and_missing_fields(self):
        def misspelt(spec):
            spec["hostPid"] = spec.pop("hostPID")
        self.assertEqual(document_problems(self.changed(misspelt)),
                         ["DaemonSet.spec.template.spec.hostPid: unknown field"])
        nameless = self.changed(lambda spec: spec["volumes"][0].pop("name"))
        self.assertEqual(document_problems(nameless),
                         ["DaemonSet.spec.template.spec.volumes[0].name: missing"])
        self.assertTrue(document_problems(self.changed(
            lambda spec: spec["nodeSelector"].update({"nvidia.com/gpu.present": True}))))
        self.assertTrue(document_problems({"apiVersion": "v1", "kind": "DaemonSet"}))
        with self.assertRaises(yaml.YAMLError):
            documents("a: 1\na: 2\n")

    def test_selectors_ports_and_mounts(self):
        document = base_set()
        document["spec"]["template"]["metadata"]["labels"] = {"app": "derate"}
        self.assertTrue(workload_problems(document))
        for change in (
                lambda spec: spec["containers"][1].pop("ports"),
                lambda spec: spec["volumes"].pop(0),
                lambda spec: spec["containers"][0]["volumeMounts"].pop(0),
                lambda spec: spec["containers"][0]["livenessProbe"]["exec"].update(
                    command=["derate-agent", "--check", "/health"])):
            self.assertTrue(workload_problems(self.changed(change)))

    def test_rights(self):
        def token(spec):
            spec["containers"][1]["volumeMounts"].append(
                {"name": "token", "mountPath": "/t", "readOnly": True})
        for change, found in (
                (token, ["agent: token"]),
                (lambda spec: spec.pop("automountServiceAccountToken"),
                 ["each container would get a token"]),
                (lambda spec: spec["containers"][1]["securityContext"].update(privileged=True),
                 ["agent: privileged", "agent: securityContext.privileged"]),
                (lambda spec: spec["containers"][1]["securityContext"].update(runAsUser=0),
                 ["agent: root"]),
                (lambda spec: spec["containers"][1]["env"].pop(0), ["agent: GPUs"]),
                (lambda spec: spec["containers"][2]["securityContext"].pop("capabilities"),
                 ["pods: securityContext.capabilities",
                  "kubectl-proxy: securityContext.capabilities"]),
                (lambda spec: spec["containers"][0]["volumeMounts"][3].pop("readOnly"),
                 ["derated: may write to /var/lib/kubelet/pod-resources"]),
                (lambda spec: spec["containers"][1]["volumeMounts"].append(
                    {"name": "pod-logs", "mountPath": "/l", "readOnly": True}),
                 ["agent: /var/log/pods"])):
            self.assertEqual(rights_problems(self.changed(change, older_set)), found)
        self.assertEqual(shared_problems(self.changed(
            lambda spec: spec["containers"][1]["volumeMounts"][0].pop("readOnly"))),
                         ["agent: may write to 'run'"])

    def test_metrics_and_annotations(self):
        self.assertEqual(metric_problems("rate(derate_gpu_heat[5m]) > 1", served_metrics()),
                         ["no metric 'derate_gpu_heat'"])
        for wrong in ({"derate.dev/delta": "ten"}, {"derate.dev/delta": "0.6"},
                      {"derate.dev/policy": "fast"}, {"derate.dev/goven": "false"}):
            self.assertEqual(len(annotation_problems({"annotations": wrong})), 1, wrong)

    def test_files_that_no_kustomization_names(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(BASE, folder, dirs_exist_ok=True)
            Path(folder, "more.yaml").write_text("a: 1\n")
            self.assertEqual(kustomization_problems(Path(folder)), ["more.yaml: not named"])
            Path(folder, "more.yaml").rename(Path(folder, "namespace.yaml"))
            Path(folder, "configmap.yaml").unlink()
            self.assertEqual(kustomization_problems(Path(folder)), ["configmap.yaml: not there"])


def kubectl_version():
    """(major, minor) of kubectl; None: there is none."""
    if not shutil.which("kubectl"):
        return None
    done = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True,
                          text=True, timeout=60)
    match = re.match(r"v(\d+)\.(\d+)", json.loads(done.stdout or "{}").get(
        "clientVersion", {}).get("gitVersion", ""))
    return (int(match[1]), int(match[2])) if match else None


@unittest.skipUnless(yaml, "no python3-yaml here")
class Kustomize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.version = kubectl_version()
        if cls.version is None:
            raise unittest.SkipTest("no kubectl here (Debian: kubernetes-client)")

    def rendered(self, folder):
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = documents(done.stdout)
        for document in out:
            self.assertEqual(document_problems(document), [], folder)
        return out

    def of_kind(self, found, kind):
        return [each for each in found if each["kind"] == kind]

    def by_name(self, value):
        """Lists in an order of their own: kustomize has another."""
        if isinstance(value, dict):
            return {key: self.by_name(each) for key, each in value.items()}
        if isinstance(value, list):
            out = [self.by_name(each) for each in value]
            return sorted(out, key=lambda each: json.dumps(each, sort_keys=True))
        return value

    def test_the_base(self):
        found = self.rendered(BASE)
        self.assertEqual(len(found), 4)
        self.assertEqual(self.of_kind(found, "DaemonSet"), [base_set()])

    def test_with_components(self):
        if self.version < (1, 21):
            self.skipTest(f"kubectl {self.version} knows no components: 1.21 or later does")
        found = self.rendered(EXAMPLES / "site")
        daemon_set = self.of_kind(found, "DaemonSet")[0]
        self.assertEqual(self.by_name(daemon_set), self.by_name(older_set()))
        self.assertEqual(workload_problems(daemon_set) + rights_problems(daemon_set) +
                         shared_problems(daemon_set), [])
        self.assertEqual(len(self.of_kind(found, "PodMonitor")), 1)
        self.assertEqual(len(self.of_kind(found, "PrometheusRule")), 1)
        self.assertEqual(self.of_kind(found, "ServiceMonitor"), [])

    def test_each_component_alone(self):
        if self.version < (1, 21):
            self.skipTest(f"kubectl {self.version} knows no components: 1.21 or later does")
        folders = [path.parent for path in sorted(COMPONENTS.rglob("kustomization.yaml"))]
        self.assertEqual(len(folders), 5)
        with tempfile.TemporaryDirectory() as root:
            shutil.copytree(KUBE, root, dirs_exist_ok=True)
            for number, folder in enumerate(folders):
                site = Path(root) / f"site{number}"
                site.mkdir()
                (site / "kustomization.yaml").write_text(yaml.safe_dump({
                    "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                    "resources": ["../base"],
                    "components": [f"../{folder.relative_to(KUBE)}"]}))
                self.assertGreater(len(self.rendered(site)), 4, folder)


if __name__ == "__main__":
    if "--derate" in sys.argv:
        at = sys.argv.index("--derate")
        DERATE = Path(sys.argv[at + 1]).resolve()
        del sys.argv[at:at + 2]
    unittest.main(verbosity=2)
