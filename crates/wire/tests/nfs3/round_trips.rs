//! Whatever one side encodes, the other decodes as the same value.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert_eq, proptest};
use proptest::{collection, option};
use wire::nfs3::{decode, encode};
use wire::rpc::{self, AuthSys, Credentials, Flavor, Gids};
use wire::xdr::Reader;

use crate::arbitrary::{any_call, any_results};
use crate::{caller, replies};

proptest! {
    #[test]
    fn calls_to_nfs_survive_the_wire(seed in any_call()) {
        let call = seed.call();
        let (procedure, bytes) = caller::nfs_call(&call);
        prop_assert_eq!(decode::call(procedure.number(), &bytes), Ok(call));
    }

    #[test]
    fn results_of_nfs_survive_the_wire(seed in any_results()) {
        let results = seed.results();
        let mut bytes = Vec::new();
        encode::results(&results, &mut bytes);
        let mut from = Reader::new(&bytes);
        prop_assert_eq!(replies::results(seed.procedure, &mut from), Ok(results));
        prop_assert_eq!(from.rest(), &[][..]);
    }

    #[test]
    fn calls_of_rpc_survive_the_wire(
        words in any::<[u32; 7]>(),
        flavor in 2..u32::MAX,
        name in option::of(collection::vec(any::<u8>(), 0..256)),
        groups in collection::vec(any::<u32>(), 0..17),
        arguments in collection::vec(any::<u8>(), 0..50),
        is_anonymous in any::<bool>(),
    ) {
        let [xid, program, version, procedure, stamp, uid, gid] = words;
        let mut gids = Gids::default();
        groups.iter().for_each(|gid| assert!(gids.push(*gid)));
        let credentials = match &name {
            Some(machine_name) => {
                Credentials::Sys(AuthSys { stamp, machine_name, uid, gid, gids })
            }
            None if is_anonymous => Credentials::None,
            None => Credentials::Other(Flavor(flavor)),
        };
        let arguments = &arguments;
        let call = rpc::Call { xid, program, version, procedure, credentials, arguments };
        let bytes = caller::rpc_call(&call);
        prop_assert_eq!(rpc::decode::call(&bytes), Ok(call));
    }
}
