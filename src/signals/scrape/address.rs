//! Which addresses may be scraped. A policy reaches Pods, never the node, the cloud's metadata or the engine itself:
//! whoever can write a Pod's status must not make the engine fetch from there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::template::Endpoint;

/// The URL to scrape, unless the address is none of a Pod.
pub(crate) fn url_of(ip: &str, endpoint: &Endpoint, allow_loopback: bool) -> Option<String> {
    let ip: IpAddr = ip.parse().ok()?;
    let refused = match ip.to_canonical() {
        IpAddr::V4(ip) => is_refused_v4(ip, allow_loopback),
        IpAddr::V6(ip) => is_refused_v6(ip, allow_loopback),
    };
    let Endpoint { port, path } = endpoint;
    match ip {
        _ if refused => None,
        IpAddr::V4(ip) => Some(format!("http://{ip}:{port}{path}")),
        IpAddr::V6(ip) => Some(format!("http://[{ip}]:{port}{path}")),
    }
}

/// Metadata services outside of the link-local range.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

fn is_refused_v4(ip: Ipv4Addr, allow_loopback: bool) -> bool {
    (ip.is_loopback() && !allow_loopback)
        || ip.octets()[0] == 0
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_broadcast()
        || METADATA_V4.contains(&ip)
}

fn is_refused_v6(ip: Ipv6Addr, allow_loopback: bool) -> bool {
    // 64:ff9b::/96 leads to the IPv4 address in its last 32 bits.
    if let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = ip.segments() {
        let embedded = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
        return is_refused_v4(embedded, false);
    }
    (ip.is_loopback() && !allow_loopback)
        || ip.is_unspecified()
        || ip.is_unicast_link_local()
        || ip.is_multicast()
        || ip == METADATA_V6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_reached_and_nothing_else() {
        let endpoint = Endpoint { port: 8080, path: "/metrics".into() };
        let url = |ip: &str| url_of(ip, &endpoint, false);
        assert_eq!(url("10.1.2.3").as_deref(), Some("http://10.1.2.3:8080/metrics"));
        assert_eq!(url("fd00::1").as_deref(), Some("http://[fd00::1]:8080/metrics"));
        for ip in [
            "",
            "example.org",
            "10.1.2.3:80",
            "10.1.2.3/x",
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "192.0.0.192",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            assert_eq!(url(ip), None, "{ip}");
        }
        assert!(url_of("127.0.0.1", &endpoint, true).is_some());
        assert!(url_of("169.254.169.254", &endpoint, true).is_none());
    }
}
