"""Clients of a registry for tests and benchmarks: its API, and managers of fake nodes."""

import subprocess
import tempfile
import threading
import time
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cluster import ROOT

PACKAGE = "baltra.registry.v1"


class Registry:
    """Calls of the registry's API: Registry(...).call("Operators", "Devices", query="…")."""

    def __init__(self, address, token):
        with tempfile.NamedTemporaryFile() as described:
            subprocess.run(
                [
                    "protoc",
                    "-I",
                    ROOT / "crates/api/proto",
                    "registry.proto",
                    "--include_imports",
                    f"--descriptor_set_out={described.name}",
                ],
                check=True,
            )
            files = descriptor_pb2.FileDescriptorSet.FromString(Path(described.name).read_bytes())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)
        self.channel = grpc.insecure_channel(
            address,
            [("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 50)],
        )
        self.metadata = [("authorization", f"Bearer {token}")]

    def message(self, name, **fields):
        return message_factory.GetMessageClass(
            self.pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
        )(**fields)

    def call(self, service, method, timeout_s=10, **fields):
        described = self.pool.FindServiceByName(f"{PACKAGE}.{service}").FindMethodByName(method)
        request = message_factory.GetMessageClass(described.input_type)
        answered = message_factory.GetMessageClass(described.output_type)
        call = self.channel.unary_unary(
            f"/{PACKAGE}.{service}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answered.FromString,
        )
        # A registry that was restarted is connected to again within the time limit.
        return call(
            request(**fields), metadata=self.metadata, timeout=timeout_s, wait_for_ready=True
        )


class Manager:
    """Sends a manager's messages for a number of fake devices,
    each with the utilization of its instances."""

    def __init__(
        self,
        registry,
        node,
        devices=1,
        exclusive=False,
        load=10.0,
        accelerators=None,
        model="example-1000",
    ):
        self.registry = registry
        self.node = node
        self.id = f"{node}-{'0' * 32}"
        self.load = load
        self.started = time.monotonic()
        # The accelerator loaded on each device: (digest, name), or nothing.
        self.loaded = dict(accelerators or {})
        self.orders = {}
        self.failures = {}
        self.devices = [
            {
                "name": f"device{i}",
                "vendor": "Example",
                "platform": "Example Platform",
                "profile": "FULL_PROFILE",
                "model": model,
                "memory_bytes": 8 << 30,
                "compute_units": 4,
                "slots": 1,
                "exclusive": exclusive,
            }
            for i in range(devices)
        ]
        self.register()

    def register(self):
        reply = self.registry.call(
            "Nodes",
            "Register",
            node={
                "name": self.node,
                "id": self.id,
                "endpoints": [f"tcp://{self.node}:7473"],
                "version": "1",
                "metrics": "",
            },
            devices=self.devices,
        )
        self._accept(reply)
        self.heartbeat()

    def _accept(self, reply):
        self.orders = {order.device: order for order in reply.orders}

    def busy(self, device, instances):
        """Percentage of a device's time that its instances use."""
        return self.load * len(instances)

    def heartbeat(self):
        loads = []
        for device in self.devices:
            name = device["name"]
            order = self.orders.get(name)
            load = {
                "name": name,
                "utilization": min(100.0, self.busy(name, order.instances if order else ())),
                "failure": self.failures.get(name, ""),
            }
            if name in self.loaded:
                digest, accelerator = self.loaded[name]
                load["regions"] = [{"index": 0, "digest": digest, "name": accelerator}]
            loads.append(load)
        try:
            reply = self.registry.call(
                "Nodes",
                "Heartbeat",
                node=self.node,
                id=self.id,
                devices=loads,
                uptime_s=int(time.monotonic() - self.started),
            )
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            self.register()
            return
        self._accept(reply)

    def reconfigure(self, device, instance, digest, name, tenant=""):
        """Requests another accelerator on a device, like a session of the instance,
        and loads it if permitted."""
        where = {"node": self.node, "id": self.id, "device": device, "digest": digest}
        reply = self.registry.call(
            "Nodes", "Reconfiguration", instance=instance, name=name, tenant=tenant, **where
        )
        if reply.allowed and not reply.unchanged:
            self.loaded[device] = (digest, name)
            self.registry.call(
                "Nodes", "ReconfigurationEnd", region=reply.region, error="", **where
            )
        return reply


class Managers:
    """Many managers, whose heartbeats one thread sends, after a call of `before` each time."""

    def __init__(self, managers, every_s=1.0, before=lambda: None):
        self.before = before
        self.by_node = {manager.node: manager for manager in managers}
        self.every_s = every_s
        self.silent = set()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self):
        while not self.ended.is_set():
            began = time.monotonic()
            try:
                self.before()
            except grpc.RpcError:
                pass
            for manager in list(self.by_node.values()):
                if manager.node in self.silent:
                    continue
                try:
                    manager.heartbeat()
                except grpc.RpcError:
                    pass  # tests may stop the registry
            self.ended.wait(max(0.05, self.every_s - (time.monotonic() - began)))

    def end(self):
        self.ended.set()
        self.thread.join()
