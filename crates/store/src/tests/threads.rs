//! Several threads on one object.

use super::{CHUNK, address, options, pattern};
use crate::{DataService, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_disk::{Disk, MemoryDisk, RealDisk};
use vazao_meter::SystemClock;
use vazao_meter::clock::system;
use vazao_model::Code;
use vazao_model::checksum::{first_mismatch, piece_checksums};
use vazao_wire::inline::InlineTransport;
use vazao_wire::op;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Buffer, Transport, call, submit};

const LENGTH: usize = CHUNK as usize + 100_000;

struct Client {
    transport: Arc<InlineTransport>,
}

impl Client {
    fn new(disk: Arc<dyn Disk>) -> (Client, Arc<DataService>) {
        let options = Options { inline: false, ..options() };
        let service = DataService::open(vec![(disk, "/disk".into())], options, system()).expect("opens");
        let response = proto::RegisterNodeResponse {
            cluster_id: 7,
            node: 1,
            targets: vec![1],
            epoch: 1,
            ..Default::default()
        };
        service.set_registration(0, &response).expect("fits");
        let transport = InlineTransport::new(Arc::new(SystemClock));
        transport.serve("data", service.clone());
        (Client { transport }, service)
    }

    fn deadline(&self) -> u64 {
        self.transport.clock().now_ns() + 30_000_000_000
    }

    fn write(&self, inode: u64, offset: u64, bytes: &[u8], sync: bool) {
        let checksums = piece_checksums(offset, bytes);
        let request = proto::WriteRequest {
            object: Some(address(inode)),
            offset,
            checksums,
            sync,
            must_exist: false,
            lent: None,
        };
        submit::<op::Write>(&*self.transport, "data", &request, bytes, self.deadline())
            .wait()
            .expect("writes");
    }

    fn read(&self, inode: u64, offset: u64, length: u32) -> Result<(proto::ReadResponse, Buffer), Fault> {
        let request = proto::ReadRequest { object: Some(address(inode)), offset, length };
        submit::<op::Read>(&*self.transport, "data", &request, &[], self.deadline()).wait()
    }

    fn remove(&self, inode: u64) {
        let request = proto::RemoveObjectsRequest { objects: vec![address(inode)] };
        call::<op::RemoveObjects>(&*self.transport, "data", &request, self.deadline()).expect("removes");
    }
}

/// Where the reads and writes of round `n` go: whole blocks, parts of blocks, and across chunks.
fn place(n: u64) -> (u64, usize) {
    let offset = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let length = [65_536, 131_072, 700, 70_000][(n % 4) as usize];
    let offset = offset % (LENGTH - length) as u64;
    (if n.is_multiple_of(3) { offset / 65_536 * 65_536 } else { offset }, length)
}

fn overwrite_while_reading(disk: Arc<dyn Disk>, removals: bool) {
    let (client, service) = Client::new(disk);
    client.write(1, 0, &pattern(0, LENGTH), false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Dropped also when a writer panics: the readers would never end otherwise.
        let busy = Arc::new(());
        for reader in 0..2 {
            let (client, reads, is_busy) = (&client, &reads, Arc::downgrade(&busy));
            scope.spawn(move || {
                let mut n = reader * 1000;
                while is_busy.strong_count() > 0 {
                    let (offset, length) = place(n);
                    let (response, bytes) = client.read(1, offset, length as u32).expect("reads");
                    assert_eq!(first_mismatch(offset, &bytes, &response.checksums), None);
                    reads.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (client, service) = (&client, &service);
                scope.spawn(move || {
                    for n in 0..400 {
                        let (offset, length) = place(n * 2 + writer);
                        client.write(1, offset, &pattern(n, length), n % 50 == 0);
                        if n % 100 == 50 {
                            service.targets[0].checkpoint();
                        }
                        if removals && n % 20 == 0 {
                            client.remove(1);
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("writes"));
        drop(busy);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    service.close();
    let fault = client.read(1, 0, 1).expect_err("is closed");
    assert_eq!(fault.code, Code::Unavailable);
}

#[test]
fn readers_never_see_a_mismatch_while_others_overwrite() {
    overwrite_while_reading(Arc::new(MemoryDisk::new(1)), false);
}

#[test]
fn readers_never_see_a_mismatch_while_others_remove_and_write_again() {
    overwrite_while_reading(Arc::new(MemoryDisk::new(2)), true);
}

#[test]
fn the_real_disk_behaves_the_same() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let disk = Arc::new(RealDisk::open(directory.path()).expect("opens"));
    overwrite_while_reading(disk, true);
}
