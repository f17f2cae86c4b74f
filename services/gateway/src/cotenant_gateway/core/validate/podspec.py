"""The fields of a pod, and what becomes of each under the process runtime."""

import re
from typing import Final

from cotenant_gateway.core.validate.meta import DNS_LABEL, LABEL_KEY, LABEL_SELECTOR, LABEL_VALUE, LABELS, Expression
from cotenant_gateway.core.validate.schema import (
    Always,
    Decision,
    Field,
    Flag,
    Integer,
    Listing,
    NumberOrName,
    OneOf,
    Only,
    ResourceList,
    Shape,
    Text,
    Wish,
    ignored,
    kept,
    refused,
    used,
)

NO_IMAGE: Final = "pods run programs of this machine, not images"
NO_CONTAINER: Final = "a pod is a group of plain processes here, without namespaces of its own"
NO_MOUNT: Final = "processes see the machine's own files; use a path of the machine"
NO_API: Final = "there is no Kubernetes API to give access to"
NO_NETWORK: Final = "pods share the machine's network"
_PORT: Final = Integer(1, 65_535)
_NUMBER_OR_NAME: Final = NumberOrName("a port from 1 to 65535, or the name of one", 1, 65_535)
_SECONDS: Final = Integer(0, 86_400)

_ENV_SOURCE: Final = Shape(
    (
        used("fieldRef", Shape((used("fieldPath", Text(), required=True), kept("apiVersion", Text())))),
        *refused("configMapKeyRef secretKeyRef resourceFieldRef fileKeyRef", "write the value itself"),
    ),
    "env source",
)
_ENV: Final = Shape(
    (
        used("name", Text(re.compile(r"^[^=\0]+\Z"), "a name without '='"), required=True),
        used("value", Text()),
        used("valueFrom", _ENV_SOURCE),
    ),
    "environment variable",
)
_HTTP_GET: Final = Shape(
    (
        used("path", Text()),
        used("port", _NUMBER_OR_NAME, required=True),
        used("host", Text()),
        used("scheme", OneOf(("HTTP", "HTTPS"))),
        used("httpHeaders", Listing(Shape((used("name", Text(), required=True), used("value", Text()))))),
    ),
    "HTTP probe",
)
_PROBE: Final = Shape(
    (
        used("exec", Shape((used("command", Listing(Text(), least=1), required=True),))),
        used("httpGet", _HTTP_GET),
        used("tcpSocket", Shape((used("port", _NUMBER_OR_NAME, required=True), used("host", Text())))),
        *refused("grpc", "use httpGet, tcpSocket or exec"),
        used("initialDelaySeconds", _SECONDS),
        used("timeoutSeconds", Integer(1, 86_400)),
        used("periodSeconds", Integer(1, 86_400)),
        used("successThreshold", Integer(1)),
        used("failureThreshold", Integer(1)),
        used("terminationGracePeriodSeconds", _SECONDS),
    ),
    "probe",
)
_CONTAINER_PORT: Final = Shape(
    (
        kept("name", Text()),
        *ignored("containerPort", f"{NO_NETWORK}: the process itself chooses where it listens", _PORT),
        used("hostPort", _PORT, why="two pods that claim the same port never share a node"),
        used("protocol", OneOf(("TCP", "UDP", "SCTP"))),
        *ignored("hostIP", NO_NETWORK),
    ),
    "port",
)
_RESOURCES: Final = Shape(
    (
        used("requests", ResourceList()),
        used("limits", ResourceList()),
        *refused("claims", "dynamic resource allocation is not built"),
    ),
    "resources",
)
_USER: Final = NumberOrName("an id from 0 to 4294967294, or a name", 0, 2**32 - 2)
_IDENTITY: Final = (
    used("runAsUser", _USER),
    used("runAsGroup", _USER),
    used("runAsNonRoot", Flag(), why="the agent refuses to start such a container as uid 0"),
)
_UNENFORCED: Final = "not applied to processes here"
_SECURITY_NOTES: Final = ignored("seccompProfile appArmorProfile seLinuxOptions", _UNENFORCED)
_CAPABILITIES: Final = Shape(
    (*refused("add", "processes get no extra rights"), *ignored("drop", _UNENFORCED)), "capabilities"
)
_CONTAINER_SECURITY: Final = Shape(
    (
        *_IDENTITY,
        used("privileged", Only((False,), "processes never get more rights than their user has")),
        used("procMount", Only(("Default",), NO_CONTAINER)),
        used("capabilities", _CAPABILITIES),
        *ignored("allowPrivilegeEscalation", _UNENFORCED, Flag()),
        *ignored("readOnlyRootFilesystem", _UNENFORCED, Flag()),
        *_SECURITY_NOTES,
        *refused("windowsOptions", "Linux only"),
    ),
    "security context",
)
_POD_SECURITY: Final = Shape(
    (
        *_IDENTITY,
        used("supplementalGroups", Listing(Integer(0, 2**32 - 2))),
        *ignored("fsGroup fsGroupChangePolicy supplementalGroupsPolicy seLinuxChangePolicy", NO_MOUNT),
        *_SECURITY_NOTES,
        *refused("sysctls", "they would change the whole machine"),
        *refused("windowsOptions", "Linux only"),
    ),
    "security context",
)
CONTAINER: Final = Shape(
    (
        used("name", DNS_LABEL, required=True),
        *ignored("image imagePullPolicy", NO_IMAGE, Text()),
        used("command", Listing(Text())),
        used("args", Listing(Text())),
        used("workingDir", Text(re.compile(r"^/"), "an absolute path")),
        used("env", Listing(_ENV)),
        *refused("envFrom", "list the variables under env"),
        used("ports", Listing(_CONTAINER_PORT)),
        used("resources", _RESOURCES),
        used("readinessProbe", _PROBE),
        used("livenessProbe", _PROBE),
        used("startupProbe", _PROBE),
        used("securityContext", _CONTAINER_SECURITY),
        *refused("volumeMounts volumeDevices", NO_MOUNT),
        *refused("lifecycle", "hooks are not run; trap SIGTERM in the program"),
        *refused("restartPolicy restartPolicyRules", "set it for the pod"),
        used("stdin", Only((False,), "no terminal is attached")),
        used("stdinOnce", Only((False,), "no terminal is attached")),
        used("tty", Only((False,), "no terminal is attached")),
        *ignored("terminationMessagePath terminationMessagePolicy", "the end of the log serves"),
        *ignored("resizePolicy", "resources are changed by a new pod"),
    ),
    "container",
)
_SELECTOR_TERM: Final = Expression(
    (
        used("key", LABEL_KEY, required=True),
        used("operator", OneOf(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")), required=True),
        used("values", Listing(Text())),
    ),
    "node selector expression",
)
_NODE_TERM: Final = Shape(
    (used("matchExpressions", Listing(_SELECTOR_TERM)), used("matchFields", Listing(_SELECTOR_TERM))),
    "node selector term",
)
_WEIGHT: Final = used("weight", Integer(1, 100), required=True)
_NODE_AFFINITY: Final = Shape(
    (
        used(
            "requiredDuringSchedulingIgnoredDuringExecution",
            Shape((used("nodeSelectorTerms", Listing(_NODE_TERM, least=1), required=True),)),
        ),
        used(
            "preferredDuringSchedulingIgnoredDuringExecution",
            Listing(Shape((_WEIGHT, used("preference", _NODE_TERM, required=True)))),
        ),
    ),
    "node affinity",
)
_POD_TERM: Final = Shape(
    (
        used("labelSelector", LABEL_SELECTOR),
        used("topologyKey", LABEL_KEY, required=True),
        used("namespaces", Listing(DNS_LABEL)),
        *refused("namespaceSelector matchLabelKeys mismatchLabelKeys", "list the namespaces and labels"),
    ),
    "pod affinity term",
)
_POD_AFFINITY: Final = Shape(
    (
        used("requiredDuringSchedulingIgnoredDuringExecution", Listing(_POD_TERM)),
        used(
            "preferredDuringSchedulingIgnoredDuringExecution",
            Listing(Shape((_WEIGHT, used("podAffinityTerm", _POD_TERM, required=True)))),
        ),
    ),
    "pod affinity",
)
_SPREAD: Final = Shape(
    (
        used("topologyKey", LABEL_KEY, required=True),
        used("maxSkew", Integer(1), required=True),
        used("whenUnsatisfiable", Wish(("DoNotSchedule", "ScheduleAnyway"), "ScheduleAnyway"), required=True),
        used("labelSelector", LABEL_SELECTOR),
        used("minDomains", Integer(1)),
        used("nodeAffinityPolicy", Only(("Honor",), "the scheduler counts the domains that the pod's affinity allows")),
        used("nodeTaintsPolicy", Only(("Ignore",), "taints do not decide which domains count")),
        *refused("matchLabelKeys", "list the labels in labelSelector"),
    ),
    "topology spread constraint",
)
_TOLERATION: Final = Shape(
    (
        used("key", LABEL_KEY),
        used("operator", OneOf(("Equal", "Exists"))),
        used("value", LABEL_VALUE),
        used("effect", OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute"))),
        *ignored("tolerationSeconds", "a lost node's pods leave after 5 minutes", Integer(-(2**31))),
    ),
    "toleration",
)
POD_SPEC: Final = Shape(
    (
        used("containers", Listing(CONTAINER, unique="name", least=1), required=True),
        used("restartPolicy", OneOf(("Always", "OnFailure", "Never"))),
        used("terminationGracePeriodSeconds", _SECONDS),
        used("nodeSelector", LABELS),
        used(
            "affinity",
            Shape(
                (
                    used("nodeAffinity", _NODE_AFFINITY),
                    used("podAffinity", _POD_AFFINITY),
                    used("podAntiAffinity", _POD_AFFINITY),
                ),
                "affinity",
            ),
        ),
        used("tolerations", Listing(_TOLERATION)),
        used("priorityClassName", Text()),
        used("priority", Integer(-(2**31))),
        used("preemptionPolicy", OneOf(("PreemptLowerPriority", "Never"))),
        used("overhead", ResourceList()),
        used("schedulingGates", Listing(Shape((used("name", Text(), required=True),)), unique="name")),
        used("securityContext", _POD_SECURITY),
        kept("schedulerName", Text(), "one scheduler serves all names"),
        used("hostNetwork", Always(True, NO_NETWORK)),
        used("hostPID", Always(True, NO_CONTAINER)),
        used("hostIPC", Always(True, NO_CONTAINER)),
        used("os", Shape((used("name", Only(("linux",), "Linux only")),))),
        *refused("initContainers ephemeralContainers", "run the steps in one command"),
        *refused("volumes", NO_MOUNT),
        *refused("nodeName", "use nodeSelector with kubernetes.io/hostname, so that the scheduler keeps the books"),
        *refused("activeDeadlineSeconds", "set it on a Job"),
        *refused("resources resourceClaims readinessGates", "not built"),
        used("topologySpreadConstraints", Listing(_SPREAD)),
        *ignored("serviceAccountName serviceAccount automountServiceAccountToken imagePullSecrets", NO_API),
        *ignored("enableServiceLinks", NO_API),
        *ignored("dnsPolicy dnsConfig hostAliases hostname subdomain setHostnameAsFQDN", NO_NETWORK),
        *ignored("shareProcessNamespace runtimeClassName hostUsers", NO_CONTAINER),
    ),
    "pod spec",
)
SPEC_FIELD: Final = Field("spec", POD_SPEC, Decision.USED, "what to run", required=True)
