"""tvm.relay.param_dict: weights as bytes."""

from nimblevm.arguments import explain_arguments
from nimblevm.relay.param_dict import load_param_dict, save_param_dict

__all__ = ["load_param_dict", "save_param_dict"]

explain_arguments(globals(), __all__)
