#!/usr/bin/env python3
"""Times the same work in PyTorch, in ONNX Runtime and in Boxwright, side by side, and prints the ratios.

  training    yolov9-t, batch 8, 320 px, f32: forward, both losses with assignment, backward, clip, SGD, EMA
  inference   gelan-t, batch 1, 640 px, folded batch norms

    pip install torch onnxruntime numpy onnx
    cargo build --release
    python3 benches/compare_torch.py [--boxwright target/release/boxwright] [--rounds 3]

The rounds alternate between the programs, so that a busy machine hurts all of them alike; the figure is the best round.
The network below is written from the layer tables of the published description, with plain PyTorch modules.
"""
import argparse
import copy
import json
import math
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
import torch.nn.functional as F

REG_MAX = 16
STRIDES = (8, 16, 32)


class Conv(nn.Module):
    def __init__(self, c_in, c_out, k=1, s=1, g=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, k, s, k // 2, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c_out, eps=1e-3, momentum=0.03)
        self.act = act

    def forward(self, x):
        y = self.bn(self.conv(x))
        return F.silu(y) if self.act else y


class RepConv(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = Conv(c, c, 3, act=False), Conv(c, c, 1, act=False)

    def forward(self, x):
        return F.silu(self.conv1(x) + self.conv2(x))


class Bottleneck(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2 = RepConv(c), Conv(c, c, 3)

    def forward(self, x):
        return x + self.cv2(self.cv1(x))


class Csp(nn.Module):
    def __init__(self, c_in, c_out, n):
        super().__init__()
        half = c_out // 2
        self.cv1, self.cv2, self.cv3 = Conv(c_in, half), Conv(c_in, half), Conv(2 * half, c_out)
        self.m = nn.Sequential(*(Bottleneck(half) for _ in range(n)))

    def forward(self, x):
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class Elan(nn.Module):
    """ELAN1 (n = 0) and RepNCSPELAN4 (n > 0)."""

    def __init__(self, c_in, c_out, c3, c4, n=0):
        super().__init__()
        self.cv1 = Conv(c_in, c3)
        if n:
            self.cv2 = nn.Sequential(Csp(c3 // 2, c4, n), Conv(c4, c4, 3))
            self.cv3 = nn.Sequential(Csp(c4, c4, n), Conv(c4, c4, 3))
        else:
            self.cv2, self.cv3 = Conv(c3 // 2, c4, 3), Conv(c4, c4, 3)
        self.cv4 = Conv(c3 + 2 * c4, c_out)

    def forward(self, x):
        u0, u1 = self.cv1(x).chunk(2, 1)
        v = self.cv2(u1)
        return self.cv4(torch.cat((u0, u1, v, self.cv3(v)), 1))


class AConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.cv1 = Conv(c_in, c_out, 3, 2)

    def forward(self, x):
        return self.cv1(F.avg_pool2d(x, 2, 1))


class Spp(nn.Module):
    def __init__(self, c_in, c_out, c3):
        super().__init__()
        self.cv1, self.cv5 = Conv(c_in, c3), Conv(4 * c3, c_out)

    def forward(self, x):
        y = [self.cv1(x)]
        for _ in range(3):
            y.append(F.max_pool2d(y[-1], 5, 1, 2))
        return self.cv5(torch.cat(y, 1))


class Head(nn.Module):
    def __init__(self, n_classes, channels):
        super().__init__()
        r = max(channels[0] // 4, 4 * REG_MAX, 16)
        k = max(channels[0], min(2 * n_classes, 128))
        self.cv2 = nn.ModuleList(nn.Sequential(Conv(c, r, 3), Conv(r, r, 3, g=4), nn.Conv2d(r, 4 * REG_MAX, 1, groups=4)) for c in channels)
        self.cv3 = nn.ModuleList(nn.Sequential(Conv(c, k, 3), Conv(k, k, 3), nn.Conv2d(k, n_classes, 1)) for c in channels)
        for stride, reg, cls in zip(STRIDES, self.cv2, self.cv3):
            nn.init.constant_(reg[-1].bias, 1.0)
            nn.init.constant_(cls[-1].bias, math.log(5 / n_classes / (640 / stride) ** 2))

    def forward(self, maps):
        return [torch.cat((reg(x), cls(x)), 1) for x, reg, cls in zip(maps, self.cv2, self.cv3)]


UP, CAT = "up", "cat"
# (inputs, block, arguments); -1 is the row before. The first 22 rows are the deployed network of the -t model.
ROWS = [
    (-1, Conv, (16, 3, 2)), (-1, Conv, (32, 3, 2)), (-1, Elan, (32, 32, 16)), (-1, AConv, (64,)),
    (-1, Elan, (64, 64, 32, 3)), (-1, AConv, (96,)), (-1, Elan, (96, 96, 48, 3)), (-1, AConv, (128,)),
    (-1, Elan, (128, 128, 64, 3)), (-1, Spp, (128, 64)), (-1, UP, ()), ((-1, 6), CAT, ()),
    (-1, Elan, (96, 96, 48, 3)), (-1, UP, ()), ((-1, 4), CAT, ()), (-1, Elan, (64, 64, 32, 3)),
    (-1, AConv, (48,)), ((-1, 12), CAT, ()), (-1, Elan, (96, 96, 48, 3)), (-1, AConv, (64,)),
    ((-1, 9), CAT, ()), (-1, Elan, (128, 128, 64, 3)),
    (8, Spp, (128, 64)), (-1, UP, ()), ((-1, 6), CAT, ()), (-1, Elan, (96, 96, 48, 3)), (-1, UP, ()), ((-1, 4), CAT, ()),
    (-1, Elan, (64, 64, 32, 3)),
]


class Detector(nn.Module):
    def __init__(self, n_classes, dual):
        super().__init__()
        self.n_classes = n_classes
        self.rows = ROWS if dual else ROWS[:22]
        widths, layers = [], []
        for inputs, block, args in self.rows:
            sources = [widths[i] if widths else 3 for i in (inputs if isinstance(inputs, tuple) else (inputs,))]
            if block in (UP, CAT):
                widths.append(sum(sources))
                layers.append(nn.Identity())
            else:
                widths.append(args[0])
                layers.append(block(sources[0], *args))
        self.model = nn.ModuleList(layers)
        self.levels = [(15, 18, 21)] + ([(28, 25, 22)] if dual else [])
        self.heads = nn.ModuleList(Head(n_classes, [widths[i] for i in level]) for level in self.levels)

    def forward(self, x):
        out = []
        for (inputs, block, _), layer in zip(self.rows, self.model):
            source = [out[i] if out else x for i in (inputs if isinstance(inputs, tuple) else (inputs,))]
            if block == UP:
                out.append(F.interpolate(source[0], scale_factor=2, mode="nearest"))
            elif block == CAT:
                out.append(torch.cat(source, 1))
            else:
                out.append(layer(source[0]))
        return [head([out[i] for i in level]) for head, level in zip(self.heads, self.levels)]


def anchors_of(maps):
    points, strides = [], []
    for x, stride in zip(maps, STRIDES):
        h, w = x.shape[-2:]
        y, x = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
        points.append(torch.stack((x, y), -1).view(-1, 2))
        strides.append(torch.full((h * w, 1), float(stride)))
    return torch.cat(points), torch.cat(strides)


def flatten(maps):
    return torch.cat([x.flatten(2) for x in maps], 2).transpose(1, 2)


def boxes_of(reg, points):
    dist = reg.view(*reg.shape[:2], 4, REG_MAX).softmax(-1) @ torch.arange(REG_MAX, dtype=reg.dtype)
    return torch.cat((points - dist[..., :2], points + dist[..., 2:]), -1)


class Decoded(nn.Module):
    """The main head's boxes and scores, (B, 4 + nc, N)."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        maps = self.net(x)[0]
        points, strides = anchors_of(maps)
        z = flatten(maps)
        box = boxes_of(z[..., : 4 * REG_MAX], points)
        centre, size = (box[..., :2] + box[..., 2:]) / 2, box[..., 2:] - box[..., :2]
        return torch.cat((centre * strides, size * strides, z[..., 4 * REG_MAX :].sigmoid()), -1).transpose(1, 2)


def ciou(a, b, eps=1e-7):
    ax1, ay1, ax2, ay2 = a.unbind(-1)
    bx1, by1, bx2, by2 = b.unbind(-1)
    aw, ah, bw, bh = ax2 - ax1, ay2 - ay1 + eps, bx2 - bx1, by2 - by1 + eps
    inter = (torch.minimum(ax2, bx2) - torch.maximum(ax1, bx1)).clamp(0) * (torch.minimum(ay2, by2) - torch.maximum(ay1, by1)).clamp(0)
    iou = inter / (aw * ah + bw * bh - inter + eps)
    diagonal = (torch.maximum(ax2, bx2) - torch.minimum(ax1, bx1)) ** 2 + (torch.maximum(ay2, by2) - torch.minimum(ay1, by1)) ** 2 + eps
    rho = ((bx1 + bx2 - ax1 - ax2) ** 2 + (by1 + by2 - ay1 - ay2) ** 2) / 4
    v = 4 / math.pi**2 * (torch.atan(bw / bh) - torch.atan(aw / ah)) ** 2
    with torch.no_grad():
        alpha = v / (v - iou + 1 + eps)
    return iou - (rho / diagonal + v * alpha)


@torch.no_grad()
def assign(scores, boxes, points, cls, truth, valid):
    """Task-aligned assignment; all boxes in input pixels. Returns target scores, target boxes and the foreground mask."""
    b, g = cls.shape
    n = points.shape[0]
    overlap = ciou(truth.unsqueeze(2), boxes.unsqueeze(1)).clamp(0)
    per_class = scores.gather(2, cls.unsqueeze(1).expand(b, n, g)).transpose(1, 2)
    metric = per_class.sqrt() * overlap**6
    inside = torch.cat((points - truth[:, :, None, :2], truth[:, :, None, 2:] - points), -1).amin(-1) > 1e-9
    top = (metric * inside).topk(10, -1).indices
    positive = torch.zeros_like(inside).scatter_(-1, top, True) & inside & valid.unsqueeze(-1)
    contested = positive.sum(1, keepdim=True) > 1
    best = F.one_hot(overlap.argmax(1), g).transpose(1, 2).bool()
    positive = torch.where(contested, best, positive)
    foreground, index = positive.any(1), positive.int().argmax(1)
    metric = metric * positive
    q = (metric * (overlap * positive).amax(-1, keepdim=True) / (metric.amax(-1, keepdim=True) + 1e-9)).amax(1)
    target_cls = cls.gather(1, index)
    target = F.one_hot(target_cls, scores.shape[-1]) * (q * foreground).unsqueeze(-1)
    return target, truth.gather(1, index.unsqueeze(-1).expand(b, n, 4)), foreground


def head_loss(maps, cls, truth, valid):
    points, strides = anchors_of(maps)
    z = flatten(maps)
    reg, logits = z[..., : 4 * REG_MAX], z[..., 4 * REG_MAX :]
    boxes = boxes_of(reg, points)
    target, target_box, fg = assign(logits.sigmoid(), boxes.detach() * strides, points * strides, cls, truth, valid)
    total = target.sum().clamp(min=1)
    cls_loss = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="sum") / total
    if not fg.any():
        return torch.stack((cls_loss * 0, cls_loss, cls_loss * 0))
    weight = target.sum(-1)[fg]
    goal = (target_box / strides)[fg]
    box_loss = ((1 - ciou(boxes[fg], goal)) * weight).sum() / total
    at = points.expand(fg.shape[0], -1, 2)[fg]
    dist = torch.cat((at - goal[:, :2], goal[:, 2:] - at), -1).clamp(0, REG_MAX - 1.01)
    low = dist.long()
    high_weight = dist - low
    rows = reg[fg].view(-1, REG_MAX)
    ce = lambda bins: F.cross_entropy(rows, bins.view(-1), reduction="none").view(dist.shape)
    dfl_loss = ((ce(low) * (1 - high_weight) + ce(low + 1) * high_weight).mean(-1) * weight).sum() / total
    return torch.stack((box_loss, cls_loss, dfl_loss))


def torch_training(batch, size, n_classes, repeats):
    torch.manual_seed(0)
    net = Detector(n_classes, dual=True).train()
    ema = copy.deepcopy(net)
    decay = [p for name, p in net.named_parameters() if p.ndim > 1]
    rest = [p for name, p in net.named_parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD([{"params": rest}, {"params": decay, "weight_decay": 5e-4}], lr=0.01, momentum=0.937, nesterov=True)
    images = torch.rand(batch, 3, size, size)
    n_boxes = 8
    centre, side = torch.rand(batch, n_boxes, 2) * size * 0.6 + size * 0.2, torch.rand(batch, n_boxes, 2) * size * 0.3 + 16
    truth = torch.cat((centre - side / 2, centre + side / 2), -1).clamp(0, size)
    cls, valid = torch.randint(0, n_classes, (batch, n_boxes)), torch.ones(batch, n_boxes, dtype=torch.bool)
    gains = torch.tensor((7.5, 0.5, 1.5))

    def step():
        main, aux = net(images)
        items = (head_loss(main, cls, truth, valid) + 0.25 * head_loss(aux, cls, truth, valid)) * gains
        (items.sum() * batch).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for a, b in zip(ema.state_dict().values(), net.state_dict().values()):
                if a.dtype.is_floating_point:
                    a.mul_(0.99).add_(b, alpha=0.01)

    step()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return batch / min(times)


def folded(net):
    """Batch norms folded into their convolutions, RepConv into one convolution."""
    net = copy.deepcopy(net).eval()

    def fold(block):
        t = block.bn.weight / (block.bn.running_var + block.bn.eps).sqrt()
        return block.conv.weight * t[:, None, None, None], block.bn.bias - t * block.bn.running_mean

    def plain(conv, weight, bias, k):
        new = nn.Conv2d(conv.in_channels, conv.out_channels, k, conv.stride, k // 2, groups=conv.groups)
        new.weight.data, new.bias.data = weight.detach(), bias.detach()
        return nn.Sequential(new, nn.SiLU(inplace=True))

    def walk(module):
        for name, child in module.named_children():
            if isinstance(child, RepConv):
                (w3, b3), (w1, b1) = fold(child.conv1), fold(child.conv2)
                setattr(module, name, plain(child.conv1.conv, w3 + F.pad(w1, [1, 1, 1, 1]), b3 + b1, 3))
            elif isinstance(child, Conv):
                setattr(module, name, plain(child.conv, *fold(child), child.conv.kernel_size[0]))
            else:
                walk(child)

    walk(net)
    return net


def torch_inference(net, size, repeats):
    x = torch.rand(1, 3, size, size)
    with torch.inference_mode():
        net(x)
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            net(x)
            times.append(time.perf_counter() - start)
    return min(times) * 1e3


def onnx_inference(net, size, repeats):
    import onnxruntime

    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(net, (torch.rand(1, 3, size, size),), file.name, opset_version=17, dynamo=False)
        session = onnxruntime.InferenceSession(file.name, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: torch.rand(1, 3, size, size).numpy()}
    session.run(None, feed)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def boxwright(program, *args):
    lines = subprocess.run([program, "bench", *args, "--json"], check=True, capture_output=True, text=True).stdout.splitlines()
    return json.loads(lines[-1])["result"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--boxwright", default="target/release/boxwright")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    net = Decoded(folded(Detector(80, dual=False)))
    train = {"pytorch": [], "boxwright": []}
    infer = {"pytorch": [], "onnxruntime": [], "boxwright": []}
    repeats, many = str(args.repeats), str(4 * args.repeats)
    for _ in range(args.rounds):
        train["pytorch"].append(torch_training(8, 320, 80, args.repeats))
        ours = boxwright(args.boxwright, "train", "--model", "yolov9-t", "--batch", "8", "--imgsz", "320", "--repeats", repeats)
        train["boxwright"].append(ours["images_per_sec"])
        infer["pytorch"].append(torch_inference(net, 640, 4 * args.repeats))
        infer["onnxruntime"].append(onnx_inference(net, 640, 4 * args.repeats))
        ours = boxwright(args.boxwright, "infer", "--model", "gelan-t", "--batch", "1", "--imgsz", "640", "--repeats", many)
        infer["boxwright"].append(ours["ms"])

    best_train = {name: max(values) for name, values in train.items()}
    best_infer = {name: min(values) for name, values in infer.items()}
    print(f"training, yolov9-t, batch 8, 320 px, f32, {args.threads} threads, best of {args.rounds} rounds")
    for name, value in best_train.items():
        print(f"  {name:12} {value:7.2f} img/s   {value / best_train['pytorch']:5.2f} x PyTorch")
    print("inference, gelan-t, batch 1, 640 px, folded")
    for name, value in best_infer.items():
        print(f"  {name:12} {value:7.1f} ms      {best_infer['pytorch'] / value:5.2f} x PyTorch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
