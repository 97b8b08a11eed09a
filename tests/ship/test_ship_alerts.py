# SPDX-License-Identifier: Apache-2.0
"""docs/grafana: what the board asks (VictoriaMetrics) and which alerts fire (vmalert), of a real
job; the minutes of windows and of `for:` are made seconds."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.parse

import pytest
from shipping import get, server, start_ship
from world import DEBIAN_PYTHON, ROOT, has_torch, wait_for

GRAFANA = ROOT / "docs" / "grafana"
JOB = """
import os, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
class Data(Dataset):
    def __len__(self): return 10 ** 6
    def __getitem__(self, i):
        time.sleep(0.05 if rank == 2 else 0)
        return torch.randn(8)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept = []
for step, x in enumerate(DataLoader(Data())):
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
    kept += [bytearray(3000000)] if rank == 1 and step < 1000 else []
    print("step", step, flush=True)
    while os.path.exists("hang"): time.sleep(0.1)
"""


def alerts():
    """Their names and expressions, as the file has them."""
    text = (GRAFANA / "alerts.yml").read_text()
    found = {}
    for part in text.split("- alert: ")[1:]:
        expression = part.split("expr:", 1)[1].split("\n        labels:")[0]
        expression = re.split(r"\n        for:", expression)[0].strip().lstrip("|")
        found[part.split()[0]] = " ".join(expression.split())
    return found


def test_the_files_are_whole():
    board = json.loads((GRAFANA / "board.json").read_text())
    assert len(board["panels"]) == len({p["id"] for p in board["panels"]}) >= 8
    assert set(alerts()) == {"TrainingHangs", "CollectiveHangs", "RankGone", "Straggler",
                             "MemoryLeaks"}
    page = (ROOT / "docs" / "ship.md").read_text()
    assert all("`%s`" % name in page for name in alerts())


# Series that ship sends every 10 s, as promtool writes them: begin+step x how often, _ for none.
GOOD = {"probing_torch_step": "0+5x780", "process_threads": "9x780",
        "probing_torch_step_seconds": "0.01x780", "probing_nccl_oldest_inflight_seconds": "0x780",
        "process_resident_memory_bytes": "1000000000+0x780"}
# An hour of it goes well, then it does not: job, whose series of rank 1 is another one, and when
# the alert fires: not at the first minute, at the second.
WRONG = [("TrainingHangs", "probing_torch_step", "0+5x360 1800x420", 69, 72, None),
         ("CollectiveHangs", "probing_nccl_oldest_inflight_seconds", "0x360 0+10x420", 64, 66, "1"),
         ("RankGone", "process_threads", "9x360 _x420", 61, 64, "1"),
         ("Straggler", "probing_torch_step_seconds", "0.01x360 0.09x420", 61, 66, "1"),
         ("MemoryLeaks", "process_resident_memory_bytes", "1000000000x360 1000000000+500000x420",
          62, 110, "1")]


def series(job, name, wrong=None):
    found = []
    for rank in range(3):
        labels = 'job="%s",host="n1",rank="%d",pid="%d",instance="n1:%d"' % (
            job, rank, 70 + rank, 70 + rank)
        values = wrong if wrong and (rank == 1 or name == "probing_torch_step") else GOOD[name]
        phases = ("dataloader", "forward", "backward") if name.endswith("step_seconds") else (None,)
        for phase in phases:
            more = ',phase="%s"' % phase if phase else ""
            found.append({"series": "%s{%s%s}" % (name, labels, more),
                          "values": values if phase in (None, "dataloader") else GOOD[name]})
    return found


def test_each_alert_fires_in_its_minutes_and_no_other(tmp_path):
    """As Prometheus evaluates them, with the windows that the file has."""
    tests = []
    for alert, bad, values, before, after, rank in WRONG:
        every = [s for name in GOOD for s in series("good", name)]
        every += [s for name in GOOD for s in series("bad", name, values if name == bad else None)]
        severity = "warning" if alert in ("Straggler", "MemoryLeaks") else "critical"
        who = {"job": "bad"} if rank is None else {"job": "bad", "host": "n1", "rank": rank}
        if alert == "MemoryLeaks":
            who.update(pid="71", instance="n1:71")
        fires = "ALERTS" + json.dumps(dict(who, alertname=alert, alertstate="firing",
                                           severity=severity)).replace('": ', '"= ')
        fires = re.sub(r'"(\w+)"=', r"\1=", fires)
        tests.append({"interval": "10s", "input_series": every, "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "%dm" % at,
             "exp_samples": [{"labels": fires, "value": 1}] if at == after else []}
            for at in (59, before, after)]})
    check(tmp_path, tests)


def check(folder, tests):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian: prometheus)")
    file = folder / "alerts_test.yml"
    file.write_text(json.dumps({"rule_files": [str(GRAFANA / "alerts.yml")],
                                "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def started_anew():
    """Two jobs, of which rank 1 of one is another process from the 61st minute on."""
    found = [dict(s, series=s["series"].replace("}", ',process="%s"}' % job))
             for job in ("a", "b") for name in GOOD for s in series(job, name)]
    for one in [s for s in found if 'job="b"' in s["series"] and 'rank="1"' in s["series"]]:
        begin, step = re.match(r"([\d.]+)(?:\+(\d+))?x780$", one["values"]).groups(default="0")
        rest = "%g+%sx414" % (float(begin) + int(step) * 366, step)
        found.append({"series": one["series"].replace('"b"}', '"b2"}').replace('"71"', '"81"'),
                      "values": "_x366 " + rest})
        one["values"] = "%s+%sx365" % (begin, step)
    return found


def test_a_rank_that_is_started_anew_raises_no_alert(tmp_path):
    """Its own work was that of both processes, as long as there are figures of the old one."""
    check(tmp_path, [{"interval": "10s", "input_series": started_anew(), "promql_expr_test": [
        {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "%dm" % at, "exp_samples": []}
        for at in range(59, 80)]}])


def test_the_board_keeps_jobs_and_processes_apart(tmp_path):
    """A rank had the sum of all jobs' work (a job is made of ranks from 0 on)."""
    panels = {p["title"]: p["targets"] for p in json.loads((GRAFANA / "board.json").read_text())[
        "panels"]}

    def has(title, second, samples):
        (target,) = panels[title]
        return {"expr": target["expr"].replace("$job", ".*").replace("$host", ".*"),
                "eval_time": "%ds" % second, "exp_samples": [
                    {"labels": "{%s}" % ", ".join('%s="%s"' % pair for pair in labels.items()),
                     "value": value} for labels, value in samples]}
    every = [{"job": job, "rank": str(rank)} for job in ("a", "b") for rank in range(3)]
    memory = [dict(one, host="n1", pid=str(70 + int(one["rank"])), process=one["job"])
              for one in every] + [{"job": "b", "rank": "1", "host": "n1", "pid": "81",
                                    "process": "b2"}]
    at = 3720  # a minute after the new process began; figures of the old one count for five
    check(tmp_path, [{"interval": "10s", "input_series": started_anew(), "promql_expr_test": [
        has("A rank's own work, without waiting for others", at, [(one, 0.02) for one in every]),
        has("Time of the last step", at, []),
        has("Step of each rank", at, [(one, 5 * at / 10) for one in every]),
        has("Where the time goes, mean of all ranks", at,
            [({"job": job, "phase": phase}, 0.01) for job in ("a", "b")
             for phase in ("dataloader", "forward", "backward")]),
        has("Resident memory", at, [(one, 1e9) for one in memory])]}])


def test_vmalert_takes_the_rules():
    vmalert = shutil.which("vmalert")
    if vmalert is None:
        pytest.skip("no vmalert (Debian: victoria-metrics)")
    done = subprocess.run([vmalert, "-dryRun", "-rule=%s" % (GRAFANA / "alerts.yml")],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def quick(text):
    """Rules and queries with windows and `for:` of minutes made seconds."""
    text = re.sub(r"\[\d+m\]", "[6s]", text.replace("[2m]", "[2s]"))
    return re.sub(r"(?m)^( +for:) \d+m$", r"\1 2s", text)


@pytest.mark.skipif(not os.environ.get("PROBING_TEST_FULL"), reason="a minute: PROBING_TEST_FULL=1")
def test_the_board_and_the_alerts_of_a_real_job(world):
    python = os.environ.get("PROBING_TEST_TORCH") or DEBIAN_PYTHON
    if not has_torch(python):
        pytest.skip("no torch for %s (Debian: python3-torch)" % python)
    vm = server(world, ("victoria-metrics", "victoria-metrics-prod"), lambda port: (
        "-httpListenAddr=127.0.0.1:%d" % port, "-storageDataPath=vm", "-search.latencyOffset=0s",
        "-search.disableCache"), "/health")
    (world.tmp / "alerts.yml").write_text(quick((GRAFANA / "alerts.yml").read_text()))
    vmalert = server(world, ("vmalert", "vmalert-prod"), lambda port: (
        "-httpListenAddr=127.0.0.1:%d" % port, "-rule=alerts.yml", "-evaluationInterval=1s",
        "-datasource.url=http://127.0.0.1:%d" % vm, "-notifier.url=http://127.0.0.1:9"), "/health")
    name, script = "alerts-%d" % os.getpid(), world.tmp / "job.py"
    script.write_text(JOB)
    ranks = [world.start(python, "-u", str(script), env={
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 10000), "TORCHELASTIC_RUN_ID": name})
        for rank in range(3)]
    for rank in ranks:
        rank.wait_line("step 3")
        rank.inject("--plugin", "torch")
    start_ship(world, "job:" + name, "prometheus+http://127.0.0.1:%d/api/v1/write" % vm)

    def ask(expression):
        url = "http://127.0.0.1:%d/api/v1/query?nocache=1&query=%s" % (
            vm, urllib.parse.quote(quick(expression)))
        return get(url)["data"]["result"]

    def fires(alert):
        """Ranks of which vmalert says that it fires: not that it is pending."""
        said = get("http://127.0.0.1:%d/api/v1/alerts" % vmalert)["data"]["alerts"] or []
        return {one["labels"].get("rank", "") for one in said
                if one["state"] == "firing" and one["name"] == alert}

    wait_for(lambda: ask("count(probing_torch_step_seconds)"), "steps of the job")
    wait_for(lambda: fires("Straggler") == {"2"}, lambda: "rank 2, not %s" % fires("Straggler"))
    wait_for(lambda: fires("MemoryLeaks") == {"1"}, lambda: "rank 1, not %s" % fires("MemoryLeaks"))
    assert fires("TrainingHangs") == fires("CollectiveHangs") == set()
    board = json.loads((GRAFANA / "board.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$job", name).replace("$host", ".*")
            wait_for(lambda e=expression: ask(e), panel["title"])
    for variable in [v for v in board["templating"]["list"] if v["type"] == "query"]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)",
                                     variable["query"]["query"]).groups()
        found = {one["metric"].get(label) for one in ask("count by (%s) (%s)" % (label, metric))}
        assert found == {{"job": name, "host": socket.gethostname()}[variable["name"]]}
    (world.tmp / "hang").touch()
    wait_for(lambda: fires("TrainingHangs") == {""}, "the alert of a hang")
    ranks[0].process.send_signal(signal.SIGKILL)
    wait_for(lambda: fires("RankGone") == {"0"}, lambda: "rank 0, not %s" % fires("RankGone"))
