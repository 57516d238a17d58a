//! Names of endpoints, and messages to these names.

use super::prelude::*;

#[track_caller]
fn send_and_check_source(from: &Party, to: &Party) {
    to.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    from.endpoint.send(payload(1, 8), from.fabric_address_of(to), 2).unwrap();
    let (completion, source) = to.next_completion_with_source();
    assert_eq!((completion.context, received_bytes(&completion.buffer)), (1, payload(1, 8).to_vec()));
    assert_eq!(source, to.fabric_address_of(from));
    assert_eq!(from.next_completion().context, 2);
}

/// Shows fi_cm/setname-without-service, fi_cm/getname-after-enable.
#[over(all, own)]
fn name_is_specific_and_has_a_port(net: &Net) {
    let party = net.open_party();
    let name = party.endpoint.name().unwrap();
    assert!(name.is_specific());
    assert_ne!(name.port(), 0);
    assert_eq!(Some(name.format()), net.info().addr_format);
    assert_eq!(party.endpoint.name().unwrap(), name, "it stays the same");
}

/// Shows fi_cq/source-is-usable.
#[over(all, own)]
fn wildcard_endpoint_is_reached_by_its_name(net: &Net) {
    let format = net.info().addr_format.expect("an answer has a format");
    let (alice, bob) = net.open_equal_pair(Setup { at: Some(format.wildcard()), ..Setup::default() });
    for party in [&alice, &bob] {
        let name = party.endpoint.name().unwrap();
        assert!(name.is_specific() && name.port() != 0, "{name}");
    }
    send_and_check_source(&alice, &bob);
    send_and_check_source(&bob, &alice);
}

/// Shows fi_cm/setname.
#[over(one_process)]
fn endpoint_has_the_name_it_was_given(net: &Net) {
    let vacancy = net.reserve_vacant_address();
    let address = vacancy.address;
    drop(vacancy);
    let domain = net.open_other_domain();
    let endpoint = domain.endpoint(net.info()).unwrap();
    endpoint.set_name(address).unwrap();
    assert_eq!(endpoint.name().unwrap(), address);
    assert_eq!(endpoint.set_name(address).unwrap_err().errno(), Errno::EOPBADSTATE, "it has its name now");
    let (cq, av) = (domain.open_cq(&CqAttr::default()).unwrap(), domain.open_av(&AvAttr::default()).unwrap());
    endpoint.bind_cq(&cq, homespun::flags::BindFlags::TRANSMIT | homespun::flags::BindFlags::RECV).unwrap();
    endpoint.bind_av(&av).unwrap();
    endpoint.enable().unwrap();
    assert_eq!(endpoint.name().unwrap(), address);
}

#[over(all, native)]
fn name_of_another_endpoint_fails_with_eaddrinuse(net: &Net) {
    let (alice, bob) = net.open_pair();
    let domain = net.open_other_domain();
    let second = domain.endpoint(net.info()).unwrap();
    let address = bob.endpoint.name().unwrap();
    second.set_name(address).unwrap();
    assert_eq!(second.name().unwrap_err().errno(), Errno::EADDRINUSE);
    let refused = second.name().unwrap_err();
    assert_eq!(refused.errno(), Errno::EADDRINUSE, "every time");
    assert!(refused.to_string().contains(&address.to_string()), "{refused} names the address");
    send_and_check_source(&alice, &bob);
    // The failed endpoint may take another name.
    second.set_name(net.info().src_addr.expect("the transport has an address")).unwrap();
    second.name().unwrap();
}

#[over(all)]
fn sixteen_endpoints_exchange_messages_pairwise(net: &Net) {
    let count = 16;
    let rounds = 3;
    let parties: Vec<Party> = (0..count).map(|_| net.open_party()).collect();
    for party in &parties {
        for (n, other) in parties.iter().enumerate() {
            assert_eq!(party.insert_address_of(other), FabricAddress(n as u64));
        }
    }
    let identity = |from: usize, to: usize, round: usize| (from * 10_000 + to * 100 + round) as u64;
    let len_bytes = |round: usize| [8, 3000, 20_000][round];
    for round in 0..rounds {
        for (from, party) in parties.iter().enumerate() {
            for to in 0..count {
                party.endpoint.recv(marked_buffer(20_000), ANY, 1).unwrap();
                let message = payload(identity(from, to, round), len_bytes(round));
                party.endpoint.send(message, FabricAddress(to as u64), 2).unwrap();
            }
        }
    }
    for (to, party) in parties.iter().enumerate() {
        let mut next_round = vec![0; count];
        let mut sends = 0;
        while sends < rounds * count || next_round.iter().any(|&round| round < rounds) {
            let (completion, source) = party.next_completion_with_source();
            if completion.context == 2 {
                sends += 1;
                continue;
            }
            let from = source.0 as usize;
            let round = next_round[from];
            let expected: Bytes = payload(identity(from, to, round), len_bytes(round));
            assert!(received_bytes(&completion.buffer) == expected, "from {from} to {to}, round {round}");
            next_round[from] += 1;
        }
    }
    if net.turns == Turns::Alternate {
        parties.iter().for_each(Party::assert_no_completion);
    }
}
