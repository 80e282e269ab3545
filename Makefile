# `make demo` shows it, `make test` proves it; both do all their set-up.
CARGO ?= cargo
OUT := target

.PHONY: all demo test test-all lint unit soak loom miri integration fuzz deny cts mpi-programs test-hdl test-board test-drivers test-messages test-vm \
	test-kubernetes board-demo board-synth bench-opencl bench-http bench-cluster bench-cluster-kubernetes bench-board bench-messages \
	bench-vm bench-kubernetes cluster-demo apps build humboldt setup clean help

all: build apps

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: setup ## an OpenCL program, natively and through Baltra: the same picture
	@scripts/demo.sh

test: ## what CI runs: all groups but board and kubernetes; the last line counts
	@scripts/test.sh

test-all: ## every group, board and kubernetes included (root)
	@scripts/test.sh all

lint: ## formatting, clippy, and cargo-deny where it is installed
	@scripts/test.sh format clippy deny

unit: crate = $(firstword $(subst ::, ,$(T)))
unit: ## the crates' own tests; make unit T=wire::limits: one crate's tests with that in their name
ifdef T
	@$(CARGO) test --release --locked -p baltra-$(crate) -- $(patsubst $(crate)::%,%,$(filter-out $(crate),$(T)))
else
	@scripts/test.sh unit
endif

loom: ## every interleaving of the ring and of the library's steps
	@scripts/test.sh loom

miri: ## the ring under miri, where a nightly toolchain has it
	@scripts/test.sh miri

integration: ## real daemons, real drivers, real programs
	@scripts/test.sh integration

fuzz: ## a minute of hostile bytes for every decoder
	@scripts/test.sh fuzz

test-messages: ## the message library: shared memory, TCP, faults, hostile bytes
	@scripts/test.sh messages

test-drivers: ## programs on PoCL, Intel's CPU runtime, rusticl and Oclgrind, natively and through Baltra
	@scripts/test.sh drivers

test-hdl: ## the unit benches of the board's modules
	@scripts/test.sh hdl

test-board: ## the board's model against Linux' TCP, curl and hostile frames (root)
	@scripts/test.sh board

test-vm: ## the VM door with real guests under QEMU, two at once
	@scripts/test.sh vm

test-kubernetes: ## chart, webhook and controllers on a real API server, applications on a real node (root)
	@scripts/test.sh kubernetes

board-demo: ## the FPGA board, live: ping, curl and tcpdump against its RTL (root)
	@scripts/board-demo.sh

board-synth: ## the board placed and routed for an ECP5-85: area, clock, slack; writes bench/results/board
	@scripts/setup.sh base
	@hdl/syn/shell.py --write

soak: build apps ## an hour of good, endless, crashing, vanishing and hostile clients on all doors; SOAK_S=seconds
	@scripts/soak.py --seconds $(or $(SOAK_S),3600)

cluster-demo: build ## ranks that pass messages: the paper's example by shared memory, TCP and half on a board; heat on a plate
	@scripts/cluster-demo.sh

cts: ## Khronos' conformance tests: make cts CTS=path/to/OpenCL-CTS
	@scripts/cts.sh $(CTS) --prefix "$(CURDIR)/target/release/baltra run --standalone --"

mpi-programs: build ## OSU's benchmarks and NAS IS, unmodified: make mpi-programs OSU=path/to/osu NPB=path/to/NPB3.4-MPI
	@scripts/setup.sh fabric
	@scripts/mpi-programs.py $(if $(OSU),--osu $(OSU)) $(if $(NPB),--npb $(NPB))

bench-opencl: setup build apps ## natively and through Baltra, interleaved; writes bench/results/opencl
	@scripts/setup.sh bench
	@scripts/photo.sh
	@$(MAKE) -s -C bench/opencl
	@bench/opencl/run.py

bench-http: setup build apps ## the HTTP door beside nginx; writes bench/results/http
	@scripts/setup.sh bench
	@bench/http/run.py

bench-cluster: setup build ## five functions on three nodes beside three native ones; writes bench/results/cluster
	@scripts/setup.sh bench
	@bench/cluster/run.py

bench-cluster-kubernetes: setup build ## the same in a Kubernetes cluster of three nodes (root); writes bench/results/cluster
	@scripts/setup.sh bench kubernetes
	@scripts/kubernetes/build.sh control node
	@target/venv/bin/python bench/cluster/run.py --kubernetes

bench-board: build ## the board in cycles, and its live model's speed; writes bench/results/board
	@scripts/setup.sh base board bench
	@$(MAKE) -s -C hdl/board bench tuned
	@bench/board/run.py
	@bench/board/three_ways.py --write

bench-messages: humboldt build ## messages beside MPICH and Open MPI, the paper's tables with boards; writes bench/results/messages
	@scripts/setup.sh bench fabric board
	@bench/messages/run.py
	@bench/messages/boards.py

bench-vm: setup build apps ## the VM door: guest and host, shared memory and TCP; writes bench/results/vm
	@scripts/setup.sh vm
	@scripts/guest.sh
	@bench/vm/run.py

bench-kubernetes: build ## webhook, placement, deaths and moves in a cluster of 100 nodes in name only (root); writes bench/results/kubernetes
	@scripts/setup.sh base kubernetes
	@scripts/kubernetes/build.sh control
	@target/venv/bin/python bench/kubernetes/run.py

setup:
	@scripts/setup.sh base

humboldt: setup ## libhumboldt, the message library
	@$(MAKE) -s -C humboldt

build: setup ## the daemon, the library and the command line
	@$(CARGO) build --release --locked

apps: setup ## the example applications
	@$(MAKE) -s -C apps
	@$(MAKE) -s -C apps/functions
	@$(MAKE) -s -C bench/opencl

clean:
	@$(CARGO) clean
