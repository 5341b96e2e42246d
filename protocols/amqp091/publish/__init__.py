"""Publishing: from basic.publish to a routed message and its confirm."""
