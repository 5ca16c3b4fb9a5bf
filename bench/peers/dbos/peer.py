"""DBOS as a subject of the benchmarks: it is asked lines of JSON and answers with such, as the subject in Rust does.

Its workflows are plain functions with steps, called by threads, with the defaults of DBOS. Nothing is sent anywhere.
"""

import json
import os
import sys
import threading
import time

from dbos import DBOS, SetWorkflowID

# As long as ours.
NOTE = "a note of eighty bytes, as an order or a reservation would carry one along with them..."

# How long after the end a call may still come back before it counts as hung.
GRACE = 10.0

TICKS = os.sysconf("SC_CLK_TCK")


@DBOS.step()
def plain(number, step, note):
    return step


@DBOS.workflow()
def steps(number, activities, note):
    for step in range(activities):
        plain(number, step, note)
    return number


def start(command):
    # The driver that DBOS brings along is named in the address.
    url = command["database"]
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            url = "postgresql+psycopg://" + url[len(prefix):]
    DBOS(config={"name": "bench", "system_database_url": url, "enable_otlp": False, "log_level": "ERROR"})
    DBOS.launch()
    return "done"


class Numbers:
    """Numbers that no other process has."""

    def __init__(self):
        self.lock = threading.Lock()
        self.next = os.getpid() << 40

    def take(self):
        with self.lock:
            self.next += 1
            return self.next


NUMBERS = Numbers()


def call(method):
    if "workflow" not in method or method["workflow"]["transaction"]:
        raise RuntimeError(f"it cannot do {method}")
    number = NUMBERS.take()
    with SetWorkflowID(str(number)):
        if steps(number, method["workflow"]["activities"], NOTE) != number:
            raise RuntimeError("not the number")


class Client(threading.Thread):
    """One that asks, one thing after the other."""

    def __init__(self, load, method):
        super().__init__(daemon=True)
        self.load, self.method = load, method
        self.calls, self.errors, self.first_error = [], 0, None

    def run(self):
        while self.load.ended is None:
            begun = time.perf_counter()
            try:
                call(self.method)
                self.calls.append((begun, time.perf_counter()))
            except Exception as error:
                self.errors += 1
                self.first_error = self.first_error or str(error)
                time.sleep(0.001)


class Load:
    def __init__(self, command):
        self.command, self.ended = command, None

    def run(self):
        clients = [Client(self, self.command["method"]) for _ in range(self.command["clients"])]
        for client in clients:
            client.start()
        seconds = self.command["seconds"]
        time.sleep(seconds / 4)
        begun, before = time.perf_counter(), self.used()
        time.sleep(seconds)
        # On a machine with no time to spare a short load would otherwise see nothing at all.
        while not any(ended > begun for client in clients for _, ended in list(client.calls)) and time.perf_counter() - begun < seconds + GRACE:
            time.sleep(seconds)
        self.ended, after = time.perf_counter(), self.used()
        deadline = time.perf_counter() + GRACE
        for client in clients:
            client.join(max(0.0, deadline - time.perf_counter()))
        # A call that only partly falls into the measured time counts for that part.
        every = [call for client in clients for call in client.calls if call[1] > begun]
        parts = ((min(end, self.ended) - max(start, begun)) / (end - start) for start, end in every)
        done = sum(part for part in parts if part > 0)
        latency = sorted(end - start for start, end in every if end <= self.ended)
        calls = max(done, 1)
        errors = [client.first_error for client in clients if client.first_error]
        return {
            "per_second": done / (self.ended - begun),
            "p50": at(latency, 0.5),
            "p99": at(latency, 0.99),
            "p999": at(latency, 0.999),
            "errors": sum(client.errors for client in clients),
            "hung": sum(client.is_alive() for client in clients),
            "first_error": errors[0] if errors else None,
            "runner_micros": (after[0] - before[0]) * 1e6 / calls,
            "database_micros": (after[1] - before[1]) * 1e6 / calls,
        }

    def used(self):
        """Seconds of CPU time of the measured processes and of the database."""
        runners = sum(stat(pid)[1] for pid in self.command["runners"])
        first = self.command["database"]
        database = stat(first)[1]
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                parent, seconds = stat(name)
            except OSError:
                continue
            database += seconds if parent == first else 0.0
        return runners, database


def at(latency, part):
    """Milliseconds that so many of the calls did not exceed."""
    return latency[min(int(part * len(latency)), len(latency) - 1)] * 1000.0 if latency else 0.0


def stat(pid):
    """A process's parent and the CPU time that it has used, those of children that it has waited for included."""
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return int(words[1]), sum(int(word) for word in words[11:15]) / TICKS


def execute(command):
    if "start" in command:
        return start(command["start"])
    if command == "shards":
        return {"shards": {"served": 1, "total": 1}}
    if "load" in command:
        return {"outcome": Load(command["load"]).run()}
    if command == "stop":
        DBOS.destroy()
        return "done"
    raise RuntimeError(f"it cannot do {command}")


def main():
    # Only answers go there, whatever a library prints.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = execute(command)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=output, flush=True)
        if command == "stop":
            break
    # Clients that hang shall not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
