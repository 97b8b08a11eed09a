# SPDX-License-Identifier: Apache-2.0
"""A model behind FastAPI, and a client that asks it all the time.

    pip install fastapi uvicorn httpx && python examples/serving.py

What each thread does; which requests wait and for what; how long the model takes for one:

    probing -t PID inject --plugin torch
    probing -t PID backtrace --python
    probing -t PID backtrace --tasks
    probing -t PID query "select count(*) as calls, avg(duration) * 1000 as ms, max(duration) * 1000 as max_ms from python.torch_trace where stage = 'post forward' and module = 'Sequential'"
"""
import argparse
import asyncio
import socket

import fastapi
import httpx
import torch
import uvicorn
from torch import nn

app = fastapi.FastAPI()
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).eval()


@app.get("/predict/{seed}")
async def predict(seed: int):
    inputs = torch.randn(8, 256, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        return model(inputs).argmax(1).tolist()


async def ask(url, requests):
    n = 0
    async with httpx.AsyncClient() as client:
        while requests == 0 or n < requests:
            (await client.get("%s/predict/%d" % (url, n))).raise_for_status()
            n += 1
            if n % 100 == 1:
                print("request %d answered" % n, flush=True)
            await asyncio.sleep(0.005)


async def main():
    options = argparse.ArgumentParser(description="serve a model, and ask it")
    options.add_argument("--steps", type=int, default=0, help="requests; 0: for ever")
    o = options.parse_args()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d" % listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        print("serving on %s" % url, flush=True)
        await ask(url, o.steps)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
