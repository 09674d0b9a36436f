import torch

LEVEL = 1
NODES = 512
EDGES = 2048
DIM = 128
VARIANTS = {
    "crowded": {"NODES": 16, "EDGES": 1024, "DIM": 64},
    "odd": {"NODES": 131, "EDGES": 517, "DIM": 67},
}
GPU_VARIANTS = {
    "default": {"NODES": 16384, "EDGES": 65536, "DIM": 256},
    "crowded": {"NODES": 1024, "EDGES": 65536, "DIM": 128},
    "odd": {"NODES": 4099, "EDGES": 30011, "DIM": 131},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Each edge's message added to the node that it points to."""

    def forward(self, nodes, target, messages):
        return nodes.index_add(0, target, messages)


def get_inputs():
    return [torch.randn(NODES, DIM), torch.randint(0, NODES, (EDGES,)), torch.randn(EDGES, DIM) + 0.2]


def get_init_inputs():
    return []
