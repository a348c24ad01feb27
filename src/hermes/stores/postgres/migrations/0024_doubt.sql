-- Which parcel a receipt is about, where the platform repeats what we called it, or what it says: it may tell of one whose id was lost.

alter table early_receipts add column parcel_id bigint;
create index early_receipts_by_parcel on early_receipts (parcel_id) where parcel_id is not null;
