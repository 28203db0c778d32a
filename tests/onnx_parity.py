"""Runs an exported model in ONNX Runtime, for tests/network/onnx.rs.

usage: onnx_parity.py MODEL INPUT OUTPUT BOXES

INPUT and OUTPUT are raw little-endian float32: pictures (n, 3, side, side) in, the model's output out. BOXES gets the
detections of the first picture after suppression, rows x1, y1, x2, y2, score, class. Prints one JSON object: shapes and metadata.
The suppression is written from its definition and shares nothing with the program under test.
"""

import ast
import json
import sys

import numpy as np
import onnx
import onnxruntime

CONF, IOU = 0.25, 0.45


def suppressed(rows):
    """Greedy suppression within each class; `rows` are cx, cy, w, h and one score a class."""
    scores, classes = rows[:, 4:].max(1), rows[:, 4:].argmax(1)
    kept = scores > CONF
    rows, scores, classes = rows[kept].astype(np.float64), scores[kept], classes[kept]
    low, high = rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2
    area = (high - low).prod(1)
    boxes = []
    alive = np.argsort(-scores, kind="stable")
    while len(alive):
        best, rest = alive[0], alive[1:]
        boxes.append([*low[best], *high[best], scores[best], classes[best]])
        inside = np.clip(np.minimum(high[best], high[rest]) - np.maximum(low[best], low[rest]), 0, None).prod(1)
        overlap = inside / (area[best] + area[rest] - inside)
        alive = rest[(overlap <= IOU) | (classes[rest] != classes[best])]
    return np.array(boxes, np.float32).reshape(-1, 6)


def main(model, source, target, boxes):
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    pictures = np.fromfile(source, "<f4").reshape(-1, *taken.shape[1:])
    (output,) = session.run([given.name], {taken.name: pictures})
    output.astype("<f4").tofile(target)
    suppressed(output[0].T).astype("<f4").tofile(boxes)
    metadata = session.get_modelmeta().custom_metadata_map
    names = ast.literal_eval(metadata["names"])
    print(json.dumps({
        "input": taken.name,
        "output": given.name,
        "input_shape": taken.shape,
        "output_shape": given.shape,
        "names": [names[index] for index in range(len(names))],
        "stride": metadata["stride"],
        "imgsz": metadata["imgsz"],
        "runtime": onnxruntime.__version__,
    }))


main(*sys.argv[1:])
