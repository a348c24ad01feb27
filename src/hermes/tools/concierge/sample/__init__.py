"""The sample set that ships: places in and around Canggu, Ubud, Seminyak, Uluwatu and Jakarta, goods, and foods. The places are made up."""
