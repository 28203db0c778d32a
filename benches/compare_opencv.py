#!/usr/bin/env python3
"""Times the making of augmented training samples in Python with OpenCV and in Boxwright, side by side, and prints the ratios.

  a sample    mosaic of four pictures (longer side = input), random scale and shift, 15 % mixed with a second one, HSV gains, flip,
              RGB planes: the published recipe scratch-high without copy-paste, for boxes

    pip install opencv-python-headless numpy
    cargo build --release
    python3 benches/compare_opencv.py DATASET [--boxwright target/release/boxwright] [--imgsz 640] [--rounds 3]

The Python side is written the way of public trainers' loaders: worker processes, one OpenCV thread each, pictures decoded for every
sample (`decoded`, their default) or kept in memory (`in memory`, their option). Batches are handed over through shared memory.
Boxwright keeps pictures in memory where they fit, as it does in training. The rounds alternate between the programs, so that a busy
machine hurts all of them alike; the figure is the best round.
"""
import argparse
import glob
import json
import math
import multiprocessing as mp
import os
import random
import subprocess
import sys
import time
from multiprocessing import shared_memory

import cv2
import numpy as np

GAINS = (0.015, 0.7, 0.4)
TRANSLATE, SCALE, MIXUP, FLIP = 0.1, 0.9, 0.15, 0.5


class Samples:
    """The pictures and boxes of a folder `images/train` with `labels/train`."""

    def __init__(self, root, side, in_memory):
        self.side = side
        endings = ("jpg", "jpeg", "png", "bmp")
        self.paths = sorted(path for ending in endings for path in glob.glob(f"{root}/images/train/*.{ending}"))
        if not self.paths:
            sys.exit(f"{root}/images/train has no pictures")
        self.labels = []
        for path in self.paths:
            label = os.path.splitext(path.replace("/images/", "/labels/"))[0] + ".txt"
            rows = [line.split() for line in open(label)] if os.path.exists(label) else []
            self.labels.append(np.array([row for row in rows if len(row) == 5], np.float32).reshape(-1, 5))
        self.kept = [self.read(index) for index in range(len(self.paths))] if in_memory else None

    def read(self, index):
        picture = cv2.imread(self.paths[index])
        height, width = picture.shape[:2]
        ratio = self.side / max(height, width)
        if ratio != 1:
            picture = cv2.resize(picture, (int(width * ratio), int(height * ratio)), interpolation=cv2.INTER_LINEAR)
        return picture

    def picture(self, index):
        return self.kept[index] if self.kept else self.read(index)

    def mosaic(self, index):
        side = self.side
        centre_y, centre_x = (int(random.uniform(side / 2, 1.5 * side)) for _ in range(2))
        indices = [index] + random.choices(range(len(self.paths)), k=3)
        random.shuffle(indices)
        canvas = np.full((2 * side, 2 * side, 3), 114, np.uint8)
        boxes = []
        for place, index in enumerate(indices):
            picture = self.picture(index)
            height, width = picture.shape[:2]
            right, below = place % 2, place // 2
            x1, x2 = (centre_x, min(centre_x + width, 2 * side)) if right else (max(centre_x - width, 0), centre_x)
            y1, y2 = (centre_y, min(centre_y + height, 2 * side)) if below else (max(centre_y - height, 0), centre_y)
            left = 0 if right else width - (x2 - x1)
            top = 0 if below else height - (y2 - y1)
            canvas[y1:y2, x1:x2] = picture[top : top + y2 - y1, left : left + x2 - x1]
            rows = self.labels[index].copy()
            centre, half = rows[:, 1:3].copy(), rows[:, 3:5] / 2
            size, shift = np.array([width, height], np.float32), np.array([x1 - left, y1 - top], np.float32)
            rows[:, 1:3], rows[:, 3:5] = (centre - half) * size + shift, (centre + half) * size + shift
            boxes.append(rows)
        boxes = np.concatenate(boxes)
        boxes[:, 1:].clip(0, 2 * side, out=boxes[:, 1:])
        return self.perspective(canvas, boxes)

    def perspective(self, canvas, boxes):
        side = self.side
        scale = random.uniform(1 - SCALE, 1 + SCALE)
        shift = [random.uniform(0.5 - TRANSLATE, 0.5 + TRANSLATE) * side - scale * side for _ in range(2)]
        matrix = np.array([[scale, 0, shift[0]], [0, scale, shift[1]]])
        picture = cv2.warpAffine(canvas, matrix, dsize=(side, side), borderValue=(114, 114, 114))
        corners = np.ones((len(boxes) * 4, 3))
        corners[:, :2] = boxes[:, [1, 2, 3, 4, 1, 4, 3, 2]].reshape(-1, 2)
        corners = (corners @ matrix.T).reshape(-1, 8)
        x, y = corners[:, ::2], corners[:, 1::2]
        new = np.stack((x.min(1), y.min(1), x.max(1), y.max(1)), 1).clip(0, side)
        old_size, size = (boxes[:, 3:5] - boxes[:, 1:3]) * scale, new[:, 2:] - new[:, :2]
        aspect = np.maximum(size[:, 0] / (size[:, 1] + 1e-16), size[:, 1] / (size[:, 0] + 1e-16))
        kept = (size > 2).all(1) & (size.prod(1) / (old_size.prod(1) + 1e-16) > 0.1) & (aspect < 100)
        boxes = boxes[kept]
        boxes[:, 1:] = new[kept]
        return picture, boxes

    def sample(self, index):
        picture, boxes = self.mosaic(index)
        if random.random() < MIXUP:
            other, other_boxes = self.mosaic(random.randrange(len(self.paths)))
            ratio = np.random.beta(32.0, 32.0)
            picture = (picture * ratio + other * (1 - ratio)).astype(np.uint8)
            boxes = np.concatenate((boxes, other_boxes))
        gains = np.random.uniform(-1, 1, 3) * GAINS + 1
        hue, saturation, value = cv2.split(cv2.cvtColor(picture, cv2.COLOR_BGR2HSV))
        steps = np.arange(256, dtype=gains.dtype)
        tables = (steps * gains[0]) % 180, np.clip(steps * gains[1], 0, 255), np.clip(steps * gains[2], 0, 255)
        channels = [cv2.LUT(channel, table.astype(np.uint8)) for channel, table in zip((hue, saturation, value), tables)]
        cv2.cvtColor(cv2.merge(channels), cv2.COLOR_HSV2BGR, dst=picture)
        if random.random() < FLIP:
            picture = np.fliplr(picture)
            boxes[:, [1, 3]] = self.side - boxes[:, [3, 1]]
        return np.ascontiguousarray(picture.transpose(2, 0, 1)[::-1]), boxes


def worker(number, n_workers, root, side, in_memory, n_samples, batch, ready, memory_name):
    cv2.setNumThreads(0)
    random.seed(number)
    np.random.seed(number)
    samples = Samples(root, side, in_memory)
    memory = shared_memory.SharedMemory(memory_name)
    place = np.ndarray((n_workers, batch, 3, side, side), np.uint8, memory.buf)[number]
    ready.put(-1)
    ready.start.wait()
    n_done = 0
    while n_done < n_samples:
        n = min(batch, n_samples - n_done)
        made = [samples.sample(random.randrange(len(samples.paths))) for _ in range(n)]
        np.stack([picture for picture, _ in made], out=place[:n])
        n_done += n
        ready.put(n)


class Ready:
    def __init__(self, context):
        self.queue, self.start = context.Queue(), context.Event()

    def put(self, value):
        self.queue.put(value)


def opencv_rate(args, in_memory):
    """Samples a second of the worker processes, from when all have started."""
    context = mp.get_context("fork")
    ready = Ready(context)
    each = math.ceil(args.samples / args.workers)
    memory = shared_memory.SharedMemory(create=True, size=args.workers * args.batch * 3 * args.imgsz**2)
    try:
        arguments = (args.workers, args.dataset, args.imgsz, in_memory, each, args.batch, ready, memory.name)
        workers = [context.Process(target=worker, args=(number, *arguments)) for number in range(args.workers)]
        for process in workers:
            process.start()
        for _ in workers:
            ready.queue.get()
        start = time.perf_counter()
        ready.start.set()
        n_done = 0
        while n_done < each * args.workers:
            n_done += ready.queue.get()
        secs = time.perf_counter() - start
        for process in workers:
            process.join()
    finally:
        memory.close()
        memory.unlink()
    return n_done / secs


def boxwright_rate(args):
    command = [args.boxwright, "bench", "data", "--data", args.dataset, "--imgsz", str(args.imgsz), "--batch", str(args.batch)]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(args.workers)}
    done = subprocess.run([*command, "--repeats", "1", "--json"], capture_output=True, text=True, check=True, env=environment)
    return next(line for line in map(json.loads, done.stdout.splitlines()) if "samples_per_sec" in json.dumps(line))


def found(value, key):
    """The value of a key, at whatever depth."""
    if isinstance(value, dict):
        return value.get(key) or next(filter(None, (found(inner, key) for inner in value.values())), None)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="a folder with images/train and labels/train, or data.yaml in it")
    parser.add_argument("--boxwright", default="target/release/boxwright")
    parser.add_argument("--imgsz", type=int, default=640)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.dataset = os.path.dirname(args.dataset) if args.dataset.endswith(".yaml") else args.dataset

    best = {"decoded": 0.0, "in memory": 0.0, "boxwright": 0.0}
    for round_number in range(args.rounds):
        rates = {
            "decoded": opencv_rate(args, in_memory=False),
            "boxwright": found(boxwright_rate(args), "samples_per_sec"),
            "in memory": opencv_rate(args, in_memory=True),
        }
        print(f"round {round_number + 1}: " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()), flush=True)
        best = {name: max(best[name], rate) for name, rate in rates.items()}
    print(f"{args.imgsz} px, {args.workers} workers, OpenCV {cv2.__version__}, numpy {np.__version__}; samples a second, best of {args.rounds}:")
    print(f"  boxwright                    {best['boxwright']:8.1f}")
    for name in ("decoded", "in memory"):
        print(f"  Python and OpenCV, {name:<10}{best[name]:8.1f}   ratio {best['boxwright'] / best[name]:.2f}")


if __name__ == "__main__":
    main()
