//! The machine's interface as smoltcp sees it: one packet in, any number out.

use crate::MTU;
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub struct Device {
    tun: File,
    scratch: Vec<u8>,
}

impl Device {
    pub fn new(tun: OwnedFd) -> Device {
        Device { tun: tun.into(), scratch: Vec::new() }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    /// The machine's next packet, if any.
    pub fn read<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match self.tun.read(buffer) {
            Ok(len) => Ok(Some(&buffer[..len])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A packet for the machine. An undeliverable one is lost, like any packet.
    pub fn write(&mut self, packet: &[u8]) {
        let _ = self.tun.write(packet);
    }

    /// The interface as smoltcp sees it, with a packet that has arrived, or none.
    pub fn with<'p>(&mut self, packet: Option<&'p [u8]>) -> Arrival<'p, '_> {
        Arrival { packet, device: self }
    }

    fn writer(&mut self) -> PacketWriter<'_> {
        PacketWriter { tun: &mut self.tun, scratch: &mut self.scratch }
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

/// The interface with a packet that has arrived.
pub struct Arrival<'p, 'd> {
    pub packet: Option<&'p [u8]>,
    pub device: &'d mut Device,
}

impl phy::Device for Arrival<'_, '_> {
    type RxToken<'a>
        = ReceivedPacket<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = PacketWriter<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(ReceivedPacket<'_>, PacketWriter<'_>)> {
        let packet = self.packet.take()?;
        Some((ReceivedPacket(packet), self.device.writer()))
    }

    fn transmit(&mut self, _: Instant) -> Option<PacketWriter<'_>> {
        Some(self.device.writer())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut own = DeviceCapabilities::default();
        own.medium = Medium::Ip;
        own.max_transmission_unit = MTU as usize;
        own.checksum = checksums();
        own
    }
}

pub struct ReceivedPacket<'a>(&'a [u8]);

impl phy::RxToken for ReceivedPacket<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(self.0)
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
