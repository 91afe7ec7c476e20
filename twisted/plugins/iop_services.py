"""The services that twistd offers. Names the modules by string, so that `twistd --help` imports none of them."""

from twisted.application.service import ServiceMaker

edge = ServiceMaker("IOP edge", "iop.tap.edge", "Controller of one local group of IOP nodes.", "iop-edge")
node = ServiceMaker("IOP node", "iop.tap.node", "Executor of one machine: dials its edge and runs adapters.", "iop-node")
