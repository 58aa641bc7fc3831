//! The machine's interface as smoltcp sees it: one packet in, any number out.

use crate::MTU;
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub struct Device {
    tun: File,
    /// The next packet.
    arrived: Option<Vec<u8>>,
    scratch: Vec<u8>,
}

impl Device {
    pub fn new(tun: OwnedFd) -> Device {
        Device { tun: tun.into(), arrived: None, scratch: Vec::new() }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    /// The machine's next packet, if any.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.tun.read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A packet for the machine. An undeliverable one is lost, like any packet.
    pub fn write(&mut self, packet: &[u8]) {
        let _ = self.tun.write(packet);
    }

    /// Queues a packet for the next receiver.
    pub fn hand(&mut self, packet: &[u8]) {
        self.arrived = Some(packet.to_vec());
    }
}

/// Packets of the machine come from a kernel on this host: nothing can have damaged them.
pub fn checksums() -> ChecksumCapabilities {
    let mut checksums = ChecksumCapabilities::default();
    checksums.ipv4 = Checksum::Tx;
    checksums.tcp = Checksum::Tx;
    checksums.udp = Checksum::Tx;
    checksums
}

impl phy::Device for Device {
    type RxToken<'a> = ReceivedPacket;
    type TxToken<'a> = PacketWriter<'a>;

    fn receive(&mut self, _: Instant) -> Option<(ReceivedPacket, PacketWriter<'_>)> {
        let packet = self.arrived.take()?;
        Some((
            ReceivedPacket(packet),
            PacketWriter { tun: &mut self.tun, scratch: &mut self.scratch },
        ))
    }

    fn transmit(&mut self, _: Instant) -> Option<PacketWriter<'_>> {
        Some(PacketWriter { tun: &mut self.tun, scratch: &mut self.scratch })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut own = DeviceCapabilities::default();
        own.medium = Medium::Ip;
        own.max_transmission_unit = MTU as usize;
        own.checksum = checksums();
        own
    }
}

pub struct ReceivedPacket(Vec<u8>);

impl phy::RxToken for ReceivedPacket {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

pub struct PacketWriter<'a> {
    tun: &'a mut File,
    scratch: &'a mut Vec<u8>,
}

impl phy::TxToken for PacketWriter<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        self.scratch.resize(len, 0);
        let filled = fill(self.scratch);
        // lost packets are sent again
        let _ = self.tun.write(self.scratch);
        filled
    }
}
