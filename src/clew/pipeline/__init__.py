"""From a finished span to an exporter: stamp, price, filter, queue, export."""
