//! Deployment, moves and removal of instances, and reconfiguration of devices: the registry's part.

use super::{Event, Replica, World};
use baltra_api::query::Field;
use baltra_registry::allocate::{plan, Decision, Plan, Request};
use baltra_registry::model::{Accelerator, Instance};
use baltra_registry::signals::{desired, Measured};
use std::collections::VecDeque;

impl World<'_> {
    /// Deploys an instance, and schedules the function's further ones.
    pub(super) fn deploy_next(&mut self, function: u32, following: u32) {
        self.deploy(function);
        if let Some(following) = following.checked_sub(1) {
            let every_ns = super::ns(self.spec(function).every_s);
            let next = Event::Deploy {
                function,
                following,
            };
            self.at(self.now_ns + every_ns, next);
        }
    }

    /// Deploys one more instance of a function, if devices are allocated.
    pub(super) fn deploy(&mut self, function: u32) {
        let spec = self.spec(function);
        let state = &mut self.functions[function as usize];
        state.made += 1;
        let instance = Instance {
            id: format!("{}-{}", state.id, state.made),
            function: state.id.clone(),
            hostname: String::new(),
            node: spec.node.clone(),
            devices: Vec::new(),
        };
        match self.decide(&instance) {
            Ok((decision, plans)) => self.place(function, instance, &decision, plans),
            Err(reason) => {
                let counts = self.count(function);
                counts.instances_refused += 1;
                counts.refusal.get_or_insert(reason);
            }
        }
    }

    /// Allocates the devices of an instance, and determines the moves for it.
    fn decide(&mut self, instance: &Instance) -> Result<(Decision, Vec<Plan>), String> {
        let snapshot = self.index.snapshot();
        let Some(function) = snapshot.functions.get(&instance.function) else {
            return Err("unknown function".to_owned());
        };
        let request = Request::instance(function, instance);
        let chosen = self.index.choose(&request);
        let Some(decision) = chosen.or_else(|| self.share(&request)) else {
            let spec = self
                .functions
                .iter()
                .find(|f| f.id == function.id)
                .map(|f| f.spec);
            // Computing every device's reason takes long if there are many refusals, so it is done
            // once.
            return Err(match spec.map(|s| self.counts[s].refusal.is_some()) {
                Some(true) => String::new(),
                _ => self
                    .index
                    .allocate(&request)
                    .err()
                    .map_or(String::new(), |r| r.to_string()),
            });
        };
        let term = function.query.term(Field::Accelerator);
        let name = term.map(|t| t.exact().unwrap_or_else(|| t.to_string()));
        let accelerator = Accelerator {
            name: name.unwrap_or_default(),
            digest: String::new(),
        };
        let mut plans = Vec::new();
        for placement in &decision.devices {
            let (Some(Some(lost)), Some(region)) = (&placement.reconfigures, placement.region)
            else {
                continue;
            };
            let plan = plan(&self.index, &placement.device, region, &accelerator);
            if let Some(stranded) = plan.stranded.first() {
                return Err(format!(
                    "{} would lose '{}' with {}, {}",
                    placement.device, lost.name, stranded.instance, stranded.reason
                ));
            }
            plans.push(plan);
        }
        Ok((decision, plans))
    }

    /// Allocates devices on which an accelerator takes turns with others, as the registry does for
    /// functions without a device.
    fn share(&self, request: &Request<'_>) -> Option<Decision> {
        self.turn_options?;
        let takes_turns = |id: &String| self.boards[self.board_of[id] as usize].turns.is_some();
        let devices = self.index.snapshot().devices.keys();
        let except: Vec<_> = devices.filter(|id| !takes_turns(id)).cloned().collect();
        let query = request.query.clone().without(Field::Accelerator);
        self.index.choose(&Request {
            query: &query,
            except: &except,
            takes_turns: true,
            ..*request
        })
    }

    fn place(&mut self, function: u32, instance: Instance, decision: &Decision, plans: Vec<Plan>) {
        for plan in plans {
            self.migrate(&plan);
        }
        let id = instance.id.clone();
        self.index.commit(instance, decision);
        let at = self.replicas.len() as u32;
        let devices = decision.devices.iter().map(|p| self.board_of[&p.device]);
        self.stamps += 1;
        self.replicas.push(Replica {
            id: id.clone(),
            function,
            devices: devices.collect(),
            load: 0,
            stamp: self.stamps,
            queue: VecDeque::new(),
            working: 0,
            away: None,
            is_retired: false,
        });
        self.replica_of.insert(id, at);
        let state = &mut self.functions[function as usize];
        state.ready.insert((0, self.stamps, at));
        state.instances += 1;
        let spec = state.spec;
        self.instances[spec] += 1;
        let counts = &mut self.counts[spec];
        counts.instances_max = counts.instances_max.max(self.instances[spec]);
        for placement in &decision.devices {
            if let (Some(lost), Some(region)) = (&placement.reconfigures, placement.region) {
                let device = self.board_of[&placement.device];
                if self.boards[device as usize].turns.is_some() {
                    // Its first request has its image loaded.
                    continue;
                }
                self.reconfigure(device, region as u32, lost.is_some());
            }
        }
    }

    fn migrate(&mut self, plan: &Plan) {
        for step in &plan.moves {
            let (Some(&replica), Some(&from)) = (
                self.replica_of.get(&step.instance),
                self.board_of.get(&step.from),
            ) else {
                continue;
            };
            let snapshot = self.index.snapshot();
            let Some(mut instance) = snapshot.instances.get(&step.instance).cloned() else {
                continue;
            };
            instance.devices.retain(|d| *d != step.from);
            instance
                .devices
                .extend(step.to.iter().map(|to| to.device.clone()));
            let devices = instance.devices.iter().map(|d| self.board_of[d]);
            self.replicas[replica as usize].devices = devices.collect();
            self.index.put_instance(instance);
            self.take_along(replica, from);
            let migration_ns = (self.scenario.migration_ms * 1e6) as u64;
            self.at(self.now_ns + migration_ns, Event::Back { replica });
            let function = self.replicas[replica as usize].function;
            let is_counted = self.is_counted();
            self.count(function).migrations += u64::from(is_counted);
        }
    }

    /// Schedules the load of a region's planned accelerator, which starts when the device is idle.
    fn reconfigure(&mut self, device: u32, region: u32, replaces: bool) {
        let board = &mut self.boards[device as usize];
        board.counts.reconfigurations += 1;
        board.counts.replaced += u64::from(replaces);
        if !board.loading.contains(&region) {
            board.loading.push_back(region);
        }
        board.device.pause(true, self.now_ns, &mut self.started);
        self.follow(device);
    }

    pub(super) fn program_if_still(&mut self, device: u32) {
        let board = &mut self.boards[device as usize];
        let Some(&region) = board.loading.front() else {
            return;
        };
        if !board.is_programming && board.device.is_still() {
            board.is_programming = true;
            let at = self.now_ns + board.reconfigure_ns;
            self.at(at, Event::Programmed { device, region });
        }
    }

    pub(super) fn programmed(&mut self, device: u32, region: u32) {
        let is_counted = self.is_counted();
        let board = &mut self.boards[device as usize];
        board.counts.loading_ns += board.reconfigure_ns * u64::from(is_counted);
        if self.loaded_in_turn(device) {
            return;
        }
        self.index
            .update_device(&self.board_ids[device as usize], |function| {
                if let Some(region) = function.regions.get_mut(region as usize) {
                    if let Some(planned) = region.planned.take() {
                        region.accelerator = Some(planned);
                    }
                }
            });
        let board = &mut self.boards[device as usize];
        board.loading.pop_front();
        board.is_programming = false;
        if board.loading.is_empty() {
            board.device.pause(false, self.now_ns, &mut self.started);
        }
        self.follow(device);
    }

    pub(super) fn scale(&mut self) {
        for n in 0..self.functions.len() as u32 {
            let Some(targets) = self.spec(n).scale else {
                continue;
            };
            let state = &mut self.functions[n as usize];
            let (count, sum) = std::mem::take(&mut state.waits);
            let arrivals = std::mem::take(&mut state.arrivals);
            let devices = state
                .ready
                .iter()
                .flat_map(|(_, _, r)| &self.replicas[*r as usize].devices);
            let utilizations = devices.map(|d| self.boards[*d as usize].counts.utilization);
            let (devices, total) = utilizations.fold((0u32, 0.0), |(n, sum), u| (n + 1, sum + u));
            let wanted = desired(
                &Measured {
                    replicas: state.instances,
                    utilization: (devices > 0).then(|| total / f64::from(devices)),
                    queue_wait_ms: (count > 0).then(|| sum as f64 / count as f64 / 1e6),
                    idle: arrivals == 0 && state.in_flight == 0,
                },
                &targets,
            );
            let have = state.instances;
            for _ in have..wanted.replicas {
                self.deploy(n);
            }
            for _ in wanted.replicas..have {
                self.retire(n);
            }
        }
        self.at(self.now_ns + super::ns(self.scenario.scale_s), Event::Scale);
    }

    /// Removes the least loaded instance, which accepts no more requests and ends after its current
    /// ones.
    fn retire(&mut self, function: u32) {
        let state = &mut self.functions[function as usize];
        let Some((_, _, replica)) = state.ready.pop_first() else {
            return;
        };
        state.instances -= 1;
        self.instances[state.spec] -= 1;
        self.replicas[replica as usize].is_retired = true;
        self.leave_if_done(replica);
    }

    pub(super) fn leave_if_done(&mut self, replica: u32) {
        let state = &self.replicas[replica as usize];
        if !state.is_retired || state.load > 0 {
            return;
        }
        let id = state.id.clone();
        self.index.remove_instance(&id);
        self.replica_of.remove(&id);
    }
}
