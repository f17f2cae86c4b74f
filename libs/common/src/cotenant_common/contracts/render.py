"""Documents made from the declarations, so that what is written about the bus cannot drift from what is sent on it."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, get_type_hints

import yaml
from pydantic import BaseModel

from cotenant_common.contracts import server_config
from cotenant_common.contracts.buckets import BUCKETS, EVENTS_STREAM, BucketSpec
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.events import EVENT_TYPES
from cotenant_common.contracts.subjects import (
    DEAD_PREFIX,
    EVENTS_MESSAGE,
    EVENTS_PREFIX,
    JSON_PREFIX,
    TOPICS,
    Delivery,
    Topic,
)

CONTRACTS_PATH: Final = "docs/contracts.md"
ASYNCAPI_PATH: Final = "docs/asyncapi.yaml"
PERMISSIONS_PATH: Final = "docs/nats-permissions.conf"
_HEAD: Final = "Made by `cotenant contracts write` from `libs/common/src/cotenant_common/contracts`; do not edit."


def rendered() -> dict[str, str]:
    """Text of every generated document by its path from the root of the repository."""
    return {
        CONTRACTS_PATH: contracts_markdown(),
        ASYNCAPI_PATH: asyncapi_yaml(),
        PERMISSIONS_PATH: server_config.render_template(_HEAD),
    }


def declared_messages() -> list[type[Message]]:
    """Every message that a topic, a bucket or an event carries, and those inside them, sorted by name."""
    roots: list[type[Message]] = [EVENTS_MESSAGE, *(spec.message for spec in BUCKETS)]
    for topic in TOPICS:
        roots += [topic.message] if topic.reply is None else [topic.message, topic.reply]
    found: dict[str, type[Message]] = {}
    for root in roots:
        _collect(root, found)
    return [found[name] for name in sorted(found)]


def _collect(model: type[Message], found: dict[str, type[Message]]) -> None:
    if model.__name__ in found:
        return
    found[model.__name__] = model
    for annotation in field_types(model).values():
        for inner in _models_in(annotation):
            _collect(inner, found)


def field_types(model: type[BaseModel]) -> dict[str, Any]:
    """Annotations with names written ahead of their class resolved, which ``model_fields`` leaves as text."""
    hints = get_type_hints(model)
    return {name: hints[name] for name in model.model_fields}


def _models_in(annotation: Any) -> Iterator[type[Message]]:
    if inspect.isclass(annotation) and issubclass(annotation, Message):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def contracts_markdown() -> str:
    parts = [
        "# Contracts of the bus",
        _HEAD,
        "Payloads are MessagePack maps of the messages below; fields that are unset are left out. Ids in subjects and "
        "keys write `.` as `_`. Times are milliseconds since the epoch, CPU is milli-cores, memory is bytes.",
        "## Subjects",
        _table(_TOPIC_HEAD, [_topic_row(topic) for topic in TOPICS]),
        _events_section(),
        "## Buckets",
        "State. Every key has one writer; `lease.*` and `announced.*` are a bucket's own bookkeeping.",
        _table(_BUCKET_HEAD, [_bucket_row(spec) for spec in BUCKETS]),
        "## Messages",
        *(_message_section(model) for model in declared_messages()),
    ]
    return "\n\n".join(parts) + "\n"


_TOPIC_HEAD: Final = ("subject", "message", "reply", "publisher", "delivery", "duplicate", "loss", "reorder", "restart")
_BUCKET_HEAD: Final = ("bucket", "key", "writer", "message", "what", "kept", "republished to")


def _topic_row(topic: Topic) -> Sequence[str]:
    return (
        _code(topic.subject),
        _link(topic.message),
        _link(topic.reply) if topic.reply else "",
        topic.publisher,
        topic.delivery.value,
        topic.duplicate,
        topic.loss,
        topic.reorder,
        topic.restart,
    )


def _bucket_row(spec: BucketSpec) -> Sequence[str]:
    kept = "expires; written lazily" if spec.ttl_keys else "fsync before the answer"
    destination = _code(spec.republish[1]) if spec.republish else ""
    return (
        _code(spec.bucket),
        _code(spec.key),
        spec.writer,
        _link(spec.message),
        spec.what,
        kept,
        destination,
    )


def _events_section() -> str:
    stream = EVENTS_STREAM
    days = stream.max_age_s // 86_400
    return "\n\n".join(
        [
            "## Events",
            f"Subject {_code(f'{EVENTS_PREFIX}.<type>.<namespace>.<name>')}, without the namespace for objects of "
            f"cluster scope; message {_link(EVENTS_MESSAGE)}; CloudEvents 1.0 attributes in `ce-*` headers. Stream "
            f"`{stream.name}`: {days} days or {stream.max_bytes >> 30} GiB ({stream.why}). The id is bucket, key and "
            f"revision of the write it tells of, and `Nats-Msg-Id`: repeated within {stream.duplicate_window_s} s it "
            "is stored once, after that consumers drop it.",
            f"The gateway mirrors every event as JSON on {_code(JSON_PREFIX + '.evt.>')}. What a service could not "
            f"read is kept for people on {_code(DEAD_PREFIX + '.<service>')}.",
            "Types: " + ", ".join(_code(name) for name in EVENT_TYPES) + ".",
        ]
    )


def _message_section(model: type[Message]) -> str:
    docs = field_docs(model)
    types = field_types(model)
    rows = [
        (_code(name), _code(_type_name(types[name])), _default(information), docs.get(name, ""))
        for name, information in model.model_fields.items()
    ]
    text = "\n\n".join(part for part in (f"### {model.__name__}", _own_doc(model)) if part)
    return f"{text}\n\n{_table(('field', 'type', 'default', 'meaning'), rows)}" if rows else text


def _own_doc(model: type[Message]) -> str:
    """The class's own docstring, in one paragraph; pydantic would offer an inherited one."""
    return " ".join((model.__dict__.get("__doc__") or "").replace("``", "`").split())


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The string that follows a field in its class."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    found = {}
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            text = ast.literal_eval(after.value) if isinstance(after.value, ast.Constant) else ""
            found[field.target.id] = " ".join(str(text).replace("``", "`").split())
    return found


def _type_name(annotation: Any) -> str:
    text = (
        annotation.__name__ if inspect.isclass(annotation) and not hasattr(annotation, "__args__") else str(annotation)
    )
    text = text.replace("typing.", "").replace("NoneType", "None").replace("ForwardRef", "")
    return re.sub(r"[\w.]+\.(\w+)", r"\1", text).replace("'", '"' if "Literal" in text else "")


def _default(information: Any) -> str:
    if information.is_required():
        return "required"
    if information.default_factory is not None:
        return "empty"
    return _code(str(information.default)) if information.default != "" else "empty"


def _code(text: str) -> str:
    return f"`{text}`"


def _link(model: type[Message]) -> str:
    return f"[{model.__name__}](#{model.__name__.lower()})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def asyncapi_yaml() -> str:
    """AsyncAPI 3.0: one channel per subject, bucket and the events stream."""
    document = {
        "asyncapi": "3.0.0",
        "info": {"title": "Cotenant bus", "version": "1.0.0", "description": _HEAD},
        "defaultContentType": "application/msgpack",
        "channels": dict(_channels()),
        "operations": dict(_operations()),
        "components": {"messages": dict(_messages()), "schemas": _schemas()},
    }
    return yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)


def _channels() -> Iterator[tuple[str, dict[str, Any]]]:
    for topic in TOPICS:
        models = [topic.message] if topic.reply is None else [topic.message, topic.reply]
        yield topic.name, _channel(topic.subject, models, topic.delivery.value)
    address = EVENTS_PREFIX + ".{noun}.{verb}.{namespace}.{name}"
    yield "events", {**_channel(address, [EVENTS_MESSAGE], Delivery.EVENT.value), "x-event-types": list(EVENT_TYPES)}
    for spec in BUCKETS:
        yield f"bucket_{spec.name}", _channel(f"$KV.{spec.bucket}.{{key}}", [spec.message], f"{spec.key}: {spec.what}")


def _channel(address: str, models: Sequence[type[Message]], description: str) -> dict[str, Any]:
    channel: dict[str, Any] = {
        "address": address,
        "description": description,
        "messages": {model.__name__: {"$ref": f"#/components/messages/{model.__name__}"} for model in models},
    }
    if names := re.findall(r"\{(\w+)\}", address):
        channel["parameters"] = {name: {"description": f"one token: {name}, `.` written as `_`"} for name in names}
    return channel


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for topic in TOPICS:
        yield f"send_{topic.name}", _operation(topic.name, topic.message, topic.publisher, topic.reply)
    yield "send_events", _operation("events", EVENTS_MESSAGE, "every service", None)
    for spec in BUCKETS:
        yield f"write_{spec.name}", _operation(f"bucket_{spec.name}", spec.message, spec.writer, None)


def _operation(channel: str, message: type[Message], sender: str, reply: type[Message] | None) -> dict[str, Any]:
    reference = f"#/channels/{channel}"
    operation: dict[str, Any] = {
        "action": "send",
        "channel": {"$ref": reference},
        "summary": f"sent by {sender}",
        "messages": [{"$ref": f"{reference}/messages/{message.__name__}"}],
    }
    if reply is not None:
        operation["reply"] = {
            "channel": {"$ref": reference},
            "messages": [{"$ref": f"{reference}/messages/{reply.__name__}"}],
        }
    return operation


def _carried() -> dict[str, type[Message]]:
    carried: list[type[Message]] = [EVENTS_MESSAGE, *(spec.message for spec in BUCKETS)]
    carried += [topic.message for topic in TOPICS]
    carried += [topic.reply for topic in TOPICS if topic.reply is not None]
    return {model.__name__: model for model in carried}


def _messages() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in sorted(carried := _carried()):
        yield (
            name,
            {"name": name, "version": carried[name].version, "payload": {"$ref": f"#/components/schemas/{name}"}},
        )


def _schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for model in declared_messages():
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
        schema.pop("$defs", None)
        schemas[model.__name__] = _described(schema, field_docs(model), _own_doc(model))
    return schemas


def _described(schema: dict[str, Any], docs: Mapping[str, str], own: str) -> dict[str, Any]:
    schema.pop("description", None)
    if own:
        schema = {"title": schema.get("title"), "description": own, **schema}
    for name, text in docs.items():
        if name in schema.get("properties", {}):
            schema["properties"][name]["description"] = text
    return schema
